#include "keel/dist/checkpoint/memory_copies.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "keel/dist/checkpoint/memory_exchange.h"
#include "keel/dist/checkpoint/memory_file.h"
#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

std::string failure_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

MemoryCopies::~MemoryCopies() = default;

MemoryCopies::MemoryCopies(const Sharded& engine, Communicator& ranks, MemoryFolder folder)
    : engine_(engine),
      ranks_(ranks),
      folder_(std::move(folder)),
      hosts_(meet_in_memory(ranks, folder_.root())),
      number_(number_files(engine, ranks)) {}

std::string MemoryCopies::take(std::int64_t step, const Json& state, std::span<const SavedBeside> beside) {
  const bool is_first = hosts_.is_first(ranks_.rank());
  const std::string folder = folder_.of_step(step);
  MemoryFiles& files = files_of_next(step);
  PartExchange exchange(hosts_, ranks_, engine_.context().host(), folder, files);
  std::string part, mark;
  std::string failure = vote([&] {
    if (is_first) make_room(step);
  });
  if (failure.empty())
    failure = vote([&] {
      Json whole = state;
      keep_steps(whole, engine_, beside);
      if (ranks_.rank() == 0) mark = mark_text({ranks_.size(), std::move(whole)});
      part = write(folder, files, beside);
    });
  if (failure.empty()) {
    exchange.send_texts(part);
    failure = vote([&] { exchange.open(); });
  }
  if (failure.empty()) {
    exchange.send_files();
    failure = vote([&] { exchange.finish(); });
  }
  if (failure.empty()) {
    mark = broadcast_text(ranks_, mark);
    failure = vote([&] {
      if (is_first) write_text_file(concat(folder, '/', MemoryMark::kFile), mark);
    });
  }
  failure.empty() ? settle(step) : drop(step);
  return failure;
}

// The files of the copy before the newest one are written again.
MemoryFiles& MemoryCopies::files_of_next(std::int64_t step) {
  auto before = files_.extract(spare_);
  if (before.empty()) return files_[step];
  before.key() = step;
  return files_.insert(std::move(before)).position->second;
}

void MemoryCopies::make_room(std::int64_t step) const {
  // Somebody may have removed it.
  if (spare_ < 0 || !failure_of([&] { folder_.move(spare_, step); }).empty()) folder_.make(step);
}

std::string MemoryCopies::write(const std::string& folder, MemoryFiles& files,
                                std::span<const SavedBeside> beside) const {
  ManifestJoin join;
  for (const Section& section : sections_of(engine_, number_, beside)) join.add(files.write(folder, section));
  std::string text = part_text(std::move(join).part());
  write_text_file(concat(folder, '/', part_name(ranks_.rank())), text);
  return text;
}

// By now all hosts have the mark, and nobody goes on from the copy before any more.
void MemoryCopies::settle(std::int64_t step) {
  spare_ = std::exchange(newest_, step);
  std::error_code ignored;
  if (spare_ >= 0 && hosts_.is_first(ranks_.rank()))
    std::filesystem::remove(concat(folder_.of_step(spare_), '/', MemoryMark::kFile), ignored);
}

// By now nobody writes there any more.
void MemoryCopies::drop(std::int64_t step) {
  spare_ = kNone;
  files_.erase(step);
  if (hosts_.is_first(ranks_.rank())) folder_.remove(step);
}

// Runs f on all ranks. Returns the failure of the first one that has one; empty: none has.
std::string MemoryCopies::vote(const std::function<void()>& f) {
  const std::string failure = failure_of(f);
  const std::vector<int> failed = gather_values(ranks_, failure.empty() ? 0 : 1);
  const auto rank = static_cast<int>(std::find(failed.begin(), failed.end(), 1) - failed.begin());
  if (rank == ranks_.size()) return "";
  const std::string reason = broadcast_text(ranks_, failure, rank);
  return ranks_.size() == 1 ? reason : concat("rank ", rank, ": ", reason);
}

void MemoryCopies::remove() {
  files_.clear();
  newest_ = spare_ = kNone;
  if (hosts_.is_first(ranks_.rank())) folder_.remove();
}

std::string mark_text(const MemoryMark& mark) {
  Manifest empty;
  empty.state = {{"ranks", mark.ranks}, {"state", mark.state}};
  return manifest_text(empty);
}

MemoryMark parse_mark(std::string_view text, const std::string& path) {
  const Manifest empty = parse_manifest(text, path);
  try {
    MemoryMark mark{static_cast<int>(empty.state.at("ranks").integer()), empty.state.at("state")};
    KEEL_CHECK(mark.ranks > 0, "'", path, "' is malformed: it counts ", mark.ranks, " ranks");
    return mark;
  } catch (const JsonError&) { throw Error(concat("'", path, "' is malformed: it is not what keel writes")); }
}

}  // namespace keel
