#pragma once
// A pre-tokenizer for tests of what comes behind one.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/tokenizers/pre_tokenizer.h"

namespace keel::testing {

// Cuts at spaces, which are dropped.
class SpacePreTokenizer final : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    std::vector<Pieces::Piece> words;
    for (const Pieces::Piece& piece : pieces.pieces()) {
      std::uint32_t begin = piece.bytes.begin;
      for (std::uint32_t i = begin; i <= piece.bytes.end; ++i) {
        if (i < piece.bytes.end && pieces.bytes()[i] != ' ') continue;
        if (i > begin) words.push_back({{begin, i}, Pieces::kNoToken});
        begin = i + 1;
      }
    }
    pieces.set_pieces(std::move(words));
  }
};

}  // namespace keel::testing
