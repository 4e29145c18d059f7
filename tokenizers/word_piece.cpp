// WordPiece: the longest token that a word begins with, then the longest that goes on with the rest.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/token_model.h"
#include "keel/tokenizers/token_trie.h"

namespace keel {
namespace {

// More characters than `most`?
bool is_longer(std::string_view text, std::int64_t most) {
  if (static_cast<std::int64_t>(text.size()) <= most) return false;
  std::int64_t characters = 0;
  for (const char byte : text) characters += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  return characters > most;
}

std::uint32_t known_token(std::uint32_t token, std::string_view kind, std::string_view unknown,
                          std::string_view piece) {
  KEEL_CHECK(token != Vocabulary::kNone, kind, ": the unknown token \"", unknown, "\" is not in the vocabulary, and \"",
             piece, "\" needs it");
  return token;
}

class WordPiece final : public TokenModel {
 public:
  WordPiece(Vocabulary vocabulary, const token_models::WordPieceOptions& options)
      : vocabulary_(std::move(vocabulary)),
        options_(options),
        unknown_(vocabulary_.find(options.unknown)),
        trie_(vocabulary_),
        continued_(trie_.walk(TokenTrie::kRoot, options.continuing_prefix)) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void tokenize(std::string_view piece, std::vector<PieceToken>& out) const override {
    std::uint32_t begin = 0;
    const auto add = [&](std::uint32_t token, std::size_t end) {
      out.push_back({token, {begin, static_cast<std::uint32_t>(end)}});
      begin = static_cast<std::uint32_t>(end);
    };
    const std::size_t size = out.size();
    if (cut(piece, add)) return;
    out.resize(size);
    out.push_back({unknown(piece), {0, static_cast<std::uint32_t>(piece.size())}});
  }

  void append_ids(std::string_view piece, std::vector<std::uint32_t>& out) const override {
    const std::size_t size = out.size();
    if (cut(piece, [&](std::uint32_t token, std::size_t) { out.push_back(token); })) return;
    out.resize(size);
    out.push_back(unknown(piece));
  }

 private:
  std::uint32_t unknown(std::string_view piece) const {
    return known_token(unknown_, "WordPiece", options_.unknown, piece);
  }

  // Calls add(token, end) for each; false: some rest begins with no token, or the word is too long.
  template <class Add>
  bool cut(std::string_view piece, const Add& add) const {
    if (is_longer(piece, options_.longest_word)) return false;
    for (std::size_t begin = 0; begin < piece.size();) {
      std::uint32_t node = begin == 0 ? TokenTrie::kRoot : continued_;
      std::uint32_t best = Vocabulary::kNone;
      std::size_t end = begin;
      for (std::size_t i = begin; i < piece.size() && node != TokenTrie::kNowhere;) {
        node = trie_.child(node, piece[i++]);
        if (node != TokenTrie::kNowhere && trie_.token(node) != Vocabulary::kNone) {
          best = trie_.token(node);
          end = i;
        }
      }
      if (best == Vocabulary::kNone) return false;
      add(best, end);
      begin = end;
    }
    return true;
  }

  Vocabulary vocabulary_;
  token_models::WordPieceOptions options_;
  std::uint32_t unknown_;
  TokenTrie trie_;
  std::uint32_t continued_;  // the trie's node behind the prefix
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(std::move(unknown)), unknown_token_(vocabulary_.find(unknown_)) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void tokenize(std::string_view piece, std::vector<PieceToken>& out) const override {
    out.push_back({token(piece), {0, static_cast<std::uint32_t>(piece.size())}});
  }
  void append_ids(std::string_view piece, std::vector<std::uint32_t>& out) const override {
    out.push_back(token(piece));
  }

 private:
  std::uint32_t token(std::string_view piece) const {
    const std::uint32_t found = vocabulary_.find(piece);
    return found != Vocabulary::kNone ? found : known_token(unknown_token_, "WordLevel", unknown_, piece);
  }

  Vocabulary vocabulary_;
  std::string unknown_;
  std::uint32_t unknown_token_;
};

}  // namespace

TokenModelPtr token_models::word_piece(Vocabulary vocabulary, const WordPieceOptions& options) {
  return std::make_shared<WordPiece>(std::move(vocabulary), options);
}

TokenModelPtr token_models::word_level(Vocabulary vocabulary, const std::string& unknown) {
  return std::make_shared<WordLevel>(std::move(vocabulary), unknown);
}

}  // namespace keel
