// Parts of all ranks of a group, of which several want the same extents: where there are replicas, or where extents and
// shards are cut in different places.

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <tuple>
#include <utility>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"

namespace keel {
namespace {

// Elements [begin, end) of a tensor that a rank has place for.
struct Want {
  std::uint32_t tensor = 0;
  std::int32_t rank = 0;
  std::int64_t begin = 0, end = 0;
};

// Those of all ranks, by tensor and first element.
std::vector<Want> gather_wants(Communicator& ranks, const std::vector<Want>& mine) {
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Want));
  std::vector<Want> all;
  for (const std::string& theirs : gather_texts(ranks, bytes)) {
    const std::size_t before = all.size();
    all.resize(before + theirs.size() / sizeof(Want));
    if (!theirs.empty()) std::memcpy(all.data() + before, theirs.data(), theirs.size());
  }
  std::sort(all.begin(), all.end(), [](const Want& a, const Want& b) {
    return std::tie(a.tensor, a.begin, a.end, a.rank) < std::tie(b.tensor, b.begin, b.end, b.rank);
  });
  return all;
}

// An extent that several ranks want, ascending, and which of them reads it.
struct SharedExtent {
  const Extent* extent;
  std::vector<int> ranks;
  int reader;
};

// What the reader has goes to the others.
void pass_on(const Tensor& bytes, const SharedExtent& shared, Communicator& ranks) {
  if (std::ssize(shared.ranks) == ranks.size()) return ranks.broadcast(bytes, shared.reader).wait();
  if (ranks.rank() != shared.reader) return ranks.receive(bytes, shared.reader).wait();
  std::vector<Work> sent;
  for (const int rank : shared.ranks)
    if (rank != shared.reader) sent.push_back(ranks.send(bytes, rank));
  for (const Work& each : sent) each.wait();
}

// Who reads what: every rank comes to the same result, and keeps what concerns itself.
class Division {
 public:
  Division(const Manifest& manifest, const Communicator& ranks)
      : manifest_(manifest), rank_(ranks.rank()), bytes_(static_cast<std::size_t>(ranks.size())) {}

  // The wants of one tensor, by first element.
  void add(std::span<const Want> wants) {
    const Extent* before = nullptr;
    for (const Extent& extent : manifest_.extents_of(wants.front().tensor)) {
      if (before != nullptr && is_repeated(*before, extent)) continue;
      before = &extent;
      while (!wants.empty() && wants.front().end <= extent.begin) wants = wants.subspan(1);
      add(extent, wants);
    }
  }

  std::vector<const Extent*> alone;  // that no other rank needs
  std::vector<SharedExtent> shared;

 private:
  void add(const Extent& extent, std::span<const Want> wants) {
    std::vector<int> who;
    bool is_wanted_twice = false;
    std::int64_t reach = extent.begin;  // of the wants before
    for (const Want& want : wants) {
      if (want.begin >= extent.end) break;
      if (want.end <= extent.begin) continue;
      who.push_back(want.rank);
      is_wanted_twice |= std::max(want.begin, extent.begin) < reach;
      reach = std::max(reach, want.end);
    }
    std::sort(who.begin(), who.end());
    const bool is_mine = std::binary_search(who.begin(), who.end(), rank_);
    // Of what has no hash each rank reads its own elements, where no other one wants these.
    if (who.size() < 2 || (!manifest_.has_hashes && !is_wanted_twice)) {
      if (is_mine) alone.push_back(&extent);
      return;
    }
    const auto bytes_of = [&](int rank) -> std::uint64_t& { return bytes_[static_cast<std::size_t>(rank)]; };
    const int reader =
        *std::min_element(who.begin(), who.end(), [&](int a, int b) { return bytes_of(a) < bytes_of(b); });
    bytes_of(reader) += manifest_.bytes_of(extent);
    if (is_mine) shared.push_back({&extent, std::move(who), reader});
  }

  const Manifest& manifest_;
  int rank_;
  std::vector<std::uint64_t> bytes_;  // that each rank reads for others
};

// The elements of a part that lie in an extent.
TensorPart overlap(const TensorPart& part, const Extent& extent) {
  const std::int64_t begin = std::max(part.begin, extent.begin), end = std::min(part.end(), extent.end);
  return {part.name, part.shape, begin, part.values.slice(0, begin - part.begin, end - part.begin)};
}

// Shared extents on their way from who reads them to who wants them, in one order on all ranks.
class Exchange {
 public:
  using Take = std::function<void(const Extent&, const std::byte*)>;

  Exchange(const Manifest& manifest, std::span<const SharedExtent> all, Communicator& ranks, const Context& host,
           Take take)
      : manifest_(manifest), all_(all), ranks_(ranks), host_(host), take_(std::move(take)) {
    std::uint64_t most = 0;
    for (const SharedExtent& each : all) most = std::max(most, manifest.bytes_of(*each.extent));
    arrived_ = zeros(host_, {static_cast<std::int64_t>(most)}, DType::u8, Purpose::workspace);
  }

  // Takes what others have read, up to the next extent that this rank reads.
  void receive() {
    while (next_ < all_.size() && all_[next_].reader != ranks_.rank()) {
      const SharedExtent& each = all_[next_++];
      const Tensor bytes = place_of(each);
      pass_on(bytes, each, ranks_);
      take_(*each.extent, bytes.raw());
    }
  }
  // What this rank has read of that one.
  void give(std::span<const std::byte> bytes) {
    receive();
    const SharedExtent& each = all_[next_++];
    // Communicators only read what a root has.
    pass_on(from_external(host_, const_cast<std::byte*>(bytes.data()), {std::ssize(bytes)}, {1}, DType::u8), each,
            ranks_);
    take_(*each.extent, bytes.data());
  }
  // Where this rank cannot go on: the others do not wait for it, and get numbers that they will not use.
  void give_up() {
    while (next_ < all_.size()) {
      const SharedExtent& each = all_[next_++];
      pass_on(place_of(each), each, ranks_);
    }
  }

 private:
  Tensor place_of(const SharedExtent& each) const {
    return arrived_.slice(0, 0, static_cast<std::int64_t>(manifest_.bytes_of(*each.extent)));
  }

  const Manifest& manifest_;
  std::span<const SharedExtent> all_;
  Communicator& ranks_;
  Context host_;
  Take take_;
  Tensor arrived_;
  std::size_t next_ = 0;
};

}  // namespace

ReadCount ExtentReader::fill_among(std::string_view section, const TensorParts& parts, Communicator& ranks) const {
  if (ranks.size() == 1) return fill(section, parts);
  std::map<std::uint32_t, const TensorPart*> mine;  // by tensor
  std::vector<Want> wants;
  together(ranks, [&] {
    for (const TensorPart& part : parts) {
      if (part.numel() == 0) continue;
      const std::uint32_t tensor = place_of(section, part.name);
      KEEL_CHECK(mine.emplace(tensor, &part).second, "two parts are of ", part.name);
      wants.push_back({tensor, ranks.rank(), part.begin, part.end()});
    }
  });
  wants = gather_wants(ranks, wants);
  Division division(manifest_, ranks);
  for (auto begin = wants.begin(), end = begin; begin != wants.end(); begin = end) {
    end = std::find_if(begin, wants.end(), [&](const Want& want) { return want.tensor != begin->tensor; });
    division.add({begin, end});
  }
  ReadCount count;
  together(ranks, [&] {
    TensorParts alone;
    for (const Extent* extent : division.alone) alone.push_back(overlap(*mine.at(extent->tensor), *extent));
    count = fill(section, alone);
  });
  std::vector<const Extent*> read;
  for (const SharedExtent& each : division.shared)
    if (each.reader == ranks.rank()) read.push_back(each.extent);
  const Context host = mine.empty() ? Context::create({.threads = 1}) : mine.begin()->second->values.context().host();
  Exchange exchange(manifest_, division.shared, ranks, host, [&](const Extent& extent, const std::byte* bytes) {
    const TensorPart part = overlap(*mine.at(extent.tensor), extent);
    const DType dtype = manifest_.tensors[extent.tensor].dtype;
    copy_numbers(bytes + static_cast<std::size_t>(part.begin - extent.begin) * size_of(dtype), dtype, part.values);
  });
  std::exception_ptr failure;
  try {
    read_extents(read, [&](std::span<const std::byte> bytes) {
      exchange.give(bytes);
      count.bytes += bytes.size();
      ++count.pieces;
    });
    exchange.receive();
  } catch (...) { failure = std::current_exception(); }
  if (failure) exchange.give_up();
  together(ranks, [&] {
    if (failure) std::rethrow_exception(failure);
  });
  return count;
}

}  // namespace keel
