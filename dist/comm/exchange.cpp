#include "keel/dist/comm/exchange.h"

#include <algorithm>
#include <utility>

namespace keel {
namespace {

Context make_host() { return Context::create({.threads = 1}); }

// A tensor of the bytes themselves.
Tensor alias(const Context& host, std::vector<std::byte>& bytes) {
  return from_external(host, bytes.data(), {static_cast<std::int64_t>(bytes.size())}, {1}, DType::u8);
}

}  // namespace

Gathering::Gathering(Communicator& communicator, const std::vector<std::byte>& mine)
    : ranks_(static_cast<std::size_t>(communicator.size())), each_(mine.size()) {
  const Context host = make_host();
  const auto each = static_cast<std::int64_t>(each_), begin = each * communicator.rank();
  all_ = empty(host, {each * communicator.size()}, DType::u8, Purpose::workspace);
  const Tensor own = all_.slice(0, begin, begin + each);
  if (each == 0) return;
  std::memcpy(own.raw(), mine.data(), each_);
  if (communicator.size() > 1) work_ = communicator.all_gather(own, all_);
}

std::vector<std::vector<std::byte>> Gathering::wait() {
  std::exchange(work_, {}).wait();
  std::vector<std::vector<std::byte>> by_rank;
  const std::byte* const bytes = all_.raw();
  for (std::size_t r = 0; r < ranks_; ++r) by_rank.emplace_back(bytes + r * each_, bytes + (r + 1) * each_);
  return by_rank;
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine) {
  if (communicator.size() == 1) return {mine};
  std::vector<std::string> texts;
  communicator.attempt([&] {
    texts.clear();
    const std::vector<std::uint64_t> lengths = gather_values<std::uint64_t>(communicator, mine.size());
    std::vector<std::byte> bytes(*std::max_element(lengths.begin(), lengths.end()));
    std::copy_n(reinterpret_cast<const std::byte*>(mine.data()), mine.size(), bytes.begin());
    for (const std::vector<std::byte>& theirs : gather_bytes(communicator, bytes))
      texts.emplace_back(reinterpret_cast<const char*>(theirs.data()), lengths[texts.size()]);
  });
  return texts;
}

std::string broadcast_text(Communicator& communicator, const std::string& text, int root) {
  if (communicator.size() == 1) return text;
  std::vector<std::byte> bytes;
  communicator.attempt([&] {
    const Context host = make_host();
    std::vector<std::byte> length(sizeof(std::uint64_t));
    const std::uint64_t mine = text.size();
    std::memcpy(length.data(), &mine, sizeof mine);
    communicator.broadcast(alias(host, length), root).wait();
    std::uint64_t count = 0;
    std::memcpy(&count, length.data(), sizeof count);
    bytes.assign(count, {});
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), std::min<std::size_t>(text.size(), count),
                bytes.begin());
    if (count > 0) communicator.broadcast(alias(host, bytes), root).wait();
  });
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace keel
