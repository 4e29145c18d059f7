#include "keel/trainer/data_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "keel/dist/comm/exchange.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

constexpr std::int64_t kPieces = 1024, kPieceTokens = 1024;
constexpr std::size_t kMostNamed = 8;  // ranks, and fingerprints

// "rank 3", "ranks 0, 2 and 5", "ranks 0, 1, ... (40 ranks)".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return ranks.size() <= kMostNamed ? text : concat(text, ", ... (", ranks.size(), " ranks)");
}

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
  return fmt::format("{} tokens, {:016x}", count, hash.hash().low);
}

std::string compare_fingerprints(Communicator& ranks, const std::string& fingerprint) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  const std::vector<std::string> all = gather_texts(ranks, fingerprint);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == all[rank]; });
    if (group == groups.end()) group = groups.insert(groups.end(), {all[rank], {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (std::size_t i = 0; groups.size() > 1 && i < std::min(groups.size(), kMostNamed); ++i)
    text += concat(i == 0 ? "" : ", ", ranks_text(groups[i].second), groups[i].second.size() == 1 ? " has " : " have ",
                   groups[i].first);
  return groups.size() <= kMostNamed ? text : text + ", and others still others";
}

}  // namespace keel
