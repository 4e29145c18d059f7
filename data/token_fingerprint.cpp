#include "keel/data/token_fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <span>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

constexpr std::int64_t kPieces = 1024, kPieceTokens = 1024;

}  // namespace

std::string fingerprint_of(const Tokens& tokens) {
  const std::int64_t count = tokens.size();
  const bool is_whole = count <= kPieces * kPieceTokens;
  const std::int64_t pieces = is_whole ? (count + kPieceTokens - 1) / kPieceTokens : kPieces;
  std::vector<std::int32_t> piece(kPieceTokens);
  Xxh3 hash;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t begin =
        is_whole ? i * kPieceTokens
                 : static_cast<std::int64_t>(static_cast<double>(count - kPieceTokens) * static_cast<double>(i) /
                                             static_cast<double>(kPieces - 1));
    const std::span values(piece.data(), static_cast<std::size_t>(std::min(kPieceTokens, count - begin)));
    tokens.copy(begin, values);
    hash.add(std::as_bytes(values));
  }
  return concat(count, " tokens, ", std::hex, std::setw(16), std::setfill('0'), hash.hash().low);
}

}  // namespace keel
