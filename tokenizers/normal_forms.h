#pragma once
// Decompositions and compositions of characters, by which the normal forms of Unicode's annex 15 are made. utf8proc has
// them; what came after Unicode 9 is left out, as the Tokenizers library does.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/tokenizers/two_stage.h"

namespace keel {

class NormalForms {
 public:
  static const NormalForms& get();  // made at the first call

  // In full, also of Hangul; empty where the character is its own.
  std::span<const char32_t> decomposition(char32_t c, bool compatibly) const;
  char32_t composition(char32_t first, char32_t second) const;  // 0: they stay two
  bool is_composite(char32_t c) const;                          // what its decomposition is composed to
  bool is_second(char32_t c) const;                             // of two that are composed

 private:
  struct Sequence {
    std::uint32_t begin = 0, size = 0;
  };
  struct Pair {
    std::uint64_t both = 0;  // the first in the upper half
    char32_t composite = 0;
  };

  NormalForms();
  std::uint16_t add(char32_t c, bool compatibly);
  void find_pairs();

  std::vector<char32_t> characters_;
  std::vector<Sequence> sequences_;
  TwoStage<std::uint16_t> canonical_, compatible_;  // of sequences_
  std::vector<Pair> pairs_;                         // in order
  std::vector<char32_t> composites_, seconds_;      // in order
};

}  // namespace keel
