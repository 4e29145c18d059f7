#pragma once
// New borders in the pieces of a text.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/tokenizers/pieces.h"

namespace keel {

// Puts in place of each piece that is no token those that `divide(text, add)` names by `add(begin, end)`, in ascending
// order. An empty one is none.
template <class Divide>
void divide_pieces(Pieces& pieces, const Divide& divide) {
  std::vector<Pieces::Piece> made;
  made.reserve(pieces.pieces().size() + pieces.bytes().size() / 4);
  for (const Pieces::Piece& piece : pieces.pieces()) {
    if (piece.is_token()) {
      made.push_back(piece);
      continue;
    }
    const std::uint32_t base = piece.bytes.begin;
    divide(pieces.text(piece), [&](std::uint32_t begin, std::uint32_t end) {
      if (end > begin) made.push_back({{base + begin, base + end}});
    });
  }
  pieces.set_pieces(std::move(made));
}

}  // namespace keel
