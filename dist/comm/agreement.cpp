#include "keel/dist/comm/agreement.h"

#include <algorithm>

#include "keel/dist/comm/exchange.h"

namespace keel {
namespace {

std::string line_at(const std::string& lines, std::size_t place) {
  const std::size_t begin = place == 0 ? 0 : lines.rfind('\n', place - 1) + 1;
  return begin >= lines.size() ? "nothing more" : lines.substr(begin, lines.find('\n', begin) - begin);
}

}  // namespace

bool is_thrown_by_all(const Communicator& communicator) {
  if (communicator.size() == 1) return true;
  try {
    throw;
  } catch (const AgreedError&) { return true; } catch (...) {
    return false;
  }
}

void together(Communicator& communicator, const std::function<void()>& f) {
  if (communicator.size() == 1) return f();
  std::string complaint;
  auto kind = ErrorKind::internal;
  bool failed = true;
  try {
    f();
    failed = false;
  } catch (const Error& error) {
    complaint = error.what();
    kind = error.kind();
  } catch (const std::exception& error) { complaint = error.what(); }
  const std::vector<int> kinds = gather_values(communicator, failed ? static_cast<int>(kind) : -1);
  const auto first = std::find_if(kinds.begin(), kinds.end(), [](int k) { return k >= 0; });
  if (first == kinds.end()) return;
  const auto rank = static_cast<int>(first - kinds.begin());
  const std::string told = broadcast_text(communicator, complaint, rank);
  try {
    communicator.barrier();  // a rank that ends may end the collectives of others, which have the reason by then
  } catch (const Error&) {}  // one that has passed it has ended
  throw AgreedError(MessageLines{rank == 0 ? told : concat("rank ", rank, ": ", told)}, static_cast<ErrorKind>(*first));
}

void check_agreement(Communicator& communicator, const std::string& lines, const std::string& what) {
  if (communicator.size() == 1) return;
  const std::string first = broadcast_text(communicator, lines);
  const std::vector<int> differs = gather_values(communicator, lines == first ? 0 : 1);
  const auto odd = std::find(differs.begin(), differs.end(), 1) - differs.begin();
  if (odd == communicator.size()) return;
  // That rank's text goes to all, so that every rank names the same line.
  const std::string second = broadcast_text(communicator, lines, static_cast<int>(odd));
  const auto place = static_cast<std::size_t>(
      std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first - first.begin());
  throw AgreedError(
      concat(what, ": rank 0 has ", line_at(first, place), ", rank ", odd, " has ", line_at(second, place)));
}

}  // namespace keel
