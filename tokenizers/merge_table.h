#pragma once
// The merges of a byte-pair encoding, by the pair of tokens that each joins.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "keel/tokenizers/text_hash.h"

namespace keel {

class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  struct Merge {
    std::uint32_t rank = kNoRank;  // lower: earlier
    std::uint32_t token = 0;
  };

  explicit MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)), last_(slots_.size() - 1) {}

  // Of a pair that is here already, the later merge counts.
  void set(std::uint32_t first, std::uint32_t second, Merge merge) {
    Slot& slot = slots_[place_of(first, second)];
    slot = {first, second, merge};
  }
  // kNoRank: the pair is not merged.
  Merge find(std::uint32_t first, std::uint32_t second) const { return slots_[place_of(first, second)].merge; }

 private:
  struct Slot {
    std::uint32_t first = 0, second = 0;
    Merge merge;
  };
  std::size_t place_of(std::uint32_t first, std::uint32_t second) const {
    std::size_t at = mixed_product(std::uint64_t{first} << 32 | second, 0x9e3779b97f4a7c15) & last_;
    while (slots_[at].merge.rank != kNoRank && (slots_[at].first != first || slots_[at].second != second))
      at = (at + 1) & last_;
    return at;
  }

  std::vector<Slot> slots_;  // open addressing, half of them free at least
  std::size_t last_;
};

}  // namespace keel
