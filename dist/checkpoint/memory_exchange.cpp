#include "keel/dist/checkpoint/memory_exchange.h"

#include <algorithm>
#include <span>
#include <utility>

#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

std::span<std::byte> bytes_of_text(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

// What has come, as it lies in memory.
void compare_with_hashes(const Manifest& part, const std::vector<std::span<const std::byte>>& files, int rank) {
  const auto check = [&](std::uint32_t file, std::uint64_t begin, std::uint64_t count, const Hash128& hash) {
    KEEL_CHECK(begin <= files[file].size() && count <= files[file].size() - begin &&
                   xxh3(files[file].subspan(begin, count)) == hash,
               part.files[file].name, " of rank ", rank, " has changed on its way (its hash differs)");
  };
  for (std::uint32_t f = 0; f < files.size(); ++f) check(f, 0, part.files[f].head, part.files[f].hash);
  for (const Extent& extent : part.extents) check(extent.file, extent.offset, part.bytes_of(extent), extent.hash);
}

}  // namespace

void PartExchange::Row::add(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), kExtentBytes);
    pieces.push_back(bytes.first(count));
    bytes = bytes.subspan(count);
  }
}

PartExchange::PartExchange(const MemoryHosts& hosts, Communicator& ranks, const Context& host,
                           const std::string& folder, MemoryFiles& files)
    : hosts_(hosts), ranks_(ranks), host_(host), folder_(folder), files_(files) {
  for (int r = 0; r < ranks.size(); ++r)
    if (hosts.partner[static_cast<std::size_t>(r)] == ranks.rank()) kept_.push_back({r});
}

void PartExchange::send_texts(const std::string& own) {
  own_ = own;
  const std::vector<std::uint64_t> sizes = gather_values<std::uint64_t>(ranks_, own.size());
  Row sent;
  sent.add(bytes_of_text(own_));
  std::vector<Row> received;
  for (Kept& kept : kept_) {
    kept.text.resize(sizes[static_cast<std::size_t>(kept.rank)]);
    received.push_back({kept.rank});
    received.back().add(bytes_of_text(kept.text));
  }
  travel(sent, received);
}

void PartExchange::open() {
  for (Kept& kept : kept_) {
    kept.part = parse_part(kept.text, concat("the part of rank ", kept.rank));
    for (const StoredFile& file : kept.part.files) files_.open(folder_, file.name, file.bytes);
  }
}

void PartExchange::send_files() {
  Row sent;
  add_files(parse_part(own_, "the part of this rank"), sent);
  std::vector<Row> received;
  for (const Kept& kept : kept_) {
    received.push_back({kept.rank});
    add_files(kept.part, received.back());
  }
  travel(sent, received);
}

void PartExchange::finish() {
  for (const Kept& kept : kept_) {
    std::vector<std::span<const std::byte>> files;
    for (const StoredFile& file : kept.part.files) files.push_back(files_.open(folder_, file.name, file.bytes).bytes());
    compare_with_hashes(kept.part, files, kept.rank);
    write_text_file(concat(folder_, '/', part_name(kept.rank)), kept.text);
  }
}

void PartExchange::add_files(const Manifest& part, Row& row) {
  for (const StoredFile& file : part.files) row.add(files_.open(folder_, file.name, file.bytes).bytes());
}

// All ranks go through the pieces in the same order, so nobody waits for a message that comes later.
void PartExchange::travel(const Row& sent, const std::vector<Row>& received) {
  const int partner = hosts_.partner[static_cast<std::size_t>(ranks_.rank())];
  const auto tensor = [&](std::span<std::byte> bytes) {
    return from_external(host_, bytes.data(), {static_cast<std::int64_t>(bytes.size())}, {1}, DType::u8);
  };
  std::size_t longest = partner < 0 ? 0 : sent.pieces.size();
  for (const Row& row : received) longest = std::max(longest, row.pieces.size());
  for (std::size_t i = 0; i < longest; ++i) {
    std::vector<Work> works;
    if (partner >= 0 && i < sent.pieces.size()) works.push_back(ranks_.send(tensor(sent.pieces[i]), partner));
    for (const Row& row : received)
      if (i < row.pieces.size()) works.push_back(ranks_.receive(tensor(row.pieces[i]), row.peer));
    for (const Work& work : works) work.wait();
  }
}

}  // namespace keel
