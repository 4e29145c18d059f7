// The unigram language model: of all ways to cut a piece into tokens, the one of the highest sum of log-probabilities
// (Kudo, "Subword Regularization", ACL 2018), by Viterbi's algorithm.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_tokens.h"
#include "keel/tokenizers/text_hash.h"
#include "keel/tokenizers/token_model.h"
#include "keel/tokenizers/token_trie.h"
#include "keel/tokenizers/word_memory.h"

namespace keel {
namespace {

constexpr double kUnknownPenalty = 10;  // an unknown character scores this much less than the least likely token

using ScoredTokens = std::vector<std::pair<std::string, double>>;

Vocabulary vocabulary_of(const ScoredTokens& tokens) {
  std::vector<std::pair<std::string, std::uint32_t>> numbered;
  numbered.reserve(tokens.size());
  for (const auto& token : tokens) numbered.emplace_back(token.first, static_cast<std::uint32_t>(numbered.size()));
  return Vocabulary(std::move(numbered));
}

class Unigram final : public TokenModel {
 public:
  Unigram(const ScoredTokens& tokens, const token_models::UnigramOptions& options)
      : vocabulary_(vocabulary_of(tokens)),
        unknown_(options.unknown.value_or(Vocabulary::kNone)),
        byte_fallback_(options.byte_fallback),
        bytes_(byte_tokens(vocabulary_)),
        trie_(vocabulary_) {
    KEEL_CHECK(!options.unknown || *options.unknown < tokens.size(), "Unigram: the unknown token is ",
               options.unknown.value_or(0), ", but the vocabulary has ", tokens.size(), " tokens");
    double lowest = std::numeric_limits<double>::infinity();
    scores_.reserve(tokens.size());
    for (const auto& token : tokens) {
      scores_.push_back(token.second);
      lowest = std::min(lowest, token.second);
    }
    unknown_score_ = lowest - kUnknownPenalty;
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void tokenize(std::string_view piece, std::vector<PieceToken>& out) const override {
    cut(piece, [&](std::uint32_t token, TextSpan bytes) { out.push_back({token, bytes}); });
  }

  void append_ids(std::string_view piece, std::vector<std::uint32_t>& out) const override {
    const std::uint64_t hash = text_hash(piece);
    if (memory_.append(piece, hash, out)) return;
    const std::size_t begin = out.size();
    cut(piece, [&](std::uint32_t token, TextSpan) { out.push_back(token); });
    memory_.keep(piece, hash, std::span(out).subspan(begin));
  }

 private:
  // The best way to a place in the piece: by which token, from where; and where the best way of all goes on to.
  struct Way {
    double score;
    std::uint32_t token;
    std::uint32_t begin;
    std::uint32_t next;
  };
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

  // Of ways that score the same, the one found first: that of the longest last token.
  static bool is_better(double score, const Way& way) { return way.begin == kNowhere || score > way.score; }

  void find_ways(std::string_view piece, std::span<Way> ways) const {
    std::fill(ways.begin(), ways.end(), Way{0, 0, kNowhere, 0});
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t character = std::max<std::size_t>(decode_utf8(piece, begin).bytes, 1);
      const double score = ways[begin].score;
      bool is_known = false;  // the character alone
      std::uint32_t node = TokenTrie::kRoot;
      for (std::size_t i = begin; i < piece.size();) {
        node = trie_.child(node, piece[i++]);
        if (node == TokenTrie::kNowhere) break;
        const std::uint32_t token = trie_.token(node);
        if (token == Vocabulary::kNone) continue;
        if (const double sum = scores_[token] + score; is_better(sum, ways[i]))
          ways[i] = {sum, token, static_cast<std::uint32_t>(begin), 0};
        is_known |= i == begin + character;
      }
      Way& way = ways[begin + character];
      if (const double sum = unknown_score_ + score; !is_known && is_better(sum, way)) {
        KEEL_CHECK(unknown_ != Vocabulary::kNone, "Unigram: \"", piece.substr(begin, character),
                   "\" is no token, and the model has no unknown token");
        way = {sum, unknown_, static_cast<std::uint32_t>(begin), 0};
      }
      begin += character;
    }
  }

  // Calls add(token, bytes) for each; unknown ones next to each other are one.
  template <class Add>
  void cut(std::string_view piece, const Add& add) const {
    std::array<Way, 128> few;
    std::vector<Way> many;
    std::span<Way> ways(few.data(), std::min(piece.size() + 1, few.size()));
    if (piece.size() >= few.size()) {
      many.resize(piece.size() + 1);
      ways = many;
    }
    find_ways(piece, ways);
    for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0; end = ways[end].begin)
      ways[ways[end].begin].next = end;
    for (std::size_t begin = 0; begin < piece.size();) {
      std::size_t end = ways[begin].next;
      const std::uint32_t token = ways[end].token;
      if (token == unknown_) {
        while (end < piece.size() && ways[ways[end].next].token == unknown_) end = ways[end].next;
        add_unknown(piece, begin, end, add);
      } else {
        add(token, TextSpan{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
      }
      begin = end;
    }
  }

  template <class Add>
  void add_unknown(std::string_view piece, std::size_t begin, std::size_t end, const Add& add) const {
    const std::string_view text = piece.substr(begin, end - begin);
    const TextSpan span{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
    const auto byte_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    const std::uint32_t token = vocabulary_.find(text);
    if (token != Vocabulary::kNone) {
      add(token, span);
    } else if (byte_fallback_ && std::all_of(text.begin(), text.end(),
                                             [&](char byte) { return byte_token(byte) != Vocabulary::kNone; })) {
      for (const char byte : text) add(byte_token(byte), span);
    } else {
      add(unknown_, span);
    }
  }

  Vocabulary vocabulary_;
  std::uint32_t unknown_;
  bool byte_fallback_;
  std::array<std::uint32_t, 256> bytes_;
  TokenTrie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  mutable WordMemory memory_;
};

}  // namespace

TokenModelPtr token_models::unigram(const std::vector<std::pair<std::string, double>>& tokens,
                                    const UnigramOptions& options) {
  return std::make_shared<Unigram>(tokens, options);
}

}  // namespace keel
