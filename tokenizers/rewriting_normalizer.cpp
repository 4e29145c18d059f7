#include "keel/tokenizers/rewriting_normalizer.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "keel/tokenizers/pieces.h"

namespace keel {

void RewritingNormalizer::normalize(Pieces& pieces) const {
  const auto changes = [&](const Pieces::Piece& piece) {
    return !piece.is_token() && find_change(pieces.text(piece), 0) < piece.bytes.size();
  };
  if (std::ranges::none_of(pieces.pieces(), changes)) return;
  Pieces::Rewrite rewrite(pieces);
  for (const Pieces::Piece& piece : pieces.pieces()) {
    if (piece.is_token()) {
      rewrite.token(piece);
      continue;
    }
    const std::string_view text = pieces.text(piece);
    Output output(rewrite, text, piece.bytes.begin, pieces.keeps_origins());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = find_change(text, at);
      if (next > at) output.keep(at, next);
      at = next < text.size() ? change(next, output) : next;
    }
    rewrite.cut();
  }
  rewrite.done();
}

}  // namespace keel
