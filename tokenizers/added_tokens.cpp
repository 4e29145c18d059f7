#include "keel/tokenizers/added_tokens.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/tokenizers/spaces.h"
#include "keel/tokenizers/text_trie.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

// What an added token's content becomes where a text is normalized.
std::string normalized_content(const std::string& content, const NormalizerPtr& normalizer) {
  if (normalizer == nullptr) return content;
  Pieces pieces;
  pieces.reset(content, false);
  normalizer->normalize(pieces);
  std::string text;
  for (const Pieces::Piece& piece : pieces.pieces()) text += pieces.text(piece);
  return text;
}

bool is_word_at(std::string_view text, std::size_t at) {
  return CharacterTable::get()[next_character(text, at)].is_word();
}
bool word_ends(std::string_view text) { return !text.empty() && is_word_at(text, last_character(text)); }
bool word_begins(std::string_view text) { return !text.empty() && is_word_at(text, 0); }

}  // namespace

struct AddedTokens::Finder {
  std::vector<const AddedToken*> tokens;
  TextTrie trie;

  // Cuts the tokens out of every piece that is none.
  void extract(Pieces& pieces) const {
    if (trie.empty()) return;
    std::vector<Pieces::Piece> cut;
    std::size_t copied = 0;  // of the pieces there were; they are copied only once a token is found
    const std::span<const Pieces::Piece> old = pieces.pieces();
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (old[i].is_token()) continue;
      extract(pieces.text(old[i]), old[i].bytes.begin, [&](Pieces::Piece piece) {
        for (; copied < i; ++copied) cut.push_back(old[copied]);
        copied = i + 1;
        cut.push_back(piece);
      });
    }
    if (cut.empty()) return;
    for (; copied < old.size(); ++copied) cut.push_back(old[copied]);
    pieces.set_pieces(std::move(cut));
  }

 private:
  // Hands the pieces of one text on, unless it has no token. A token that may not stand where it was found is passed
  // by, with all its bytes.
  template <class Put>
  void extract(std::string_view text, std::uint32_t base, const Put& put) const {
    const auto piece_of = [&](std::size_t begin, std::size_t end, std::uint32_t token) {
      const auto at = static_cast<std::uint32_t>(base + begin);
      return Pieces::Piece{{at, static_cast<std::uint32_t>(base + end)}, token};
    };
    std::size_t done = 0;
    for (std::size_t at = trie.next_begin(text, 0); at < text.size();) {
      const auto [number, bytes] = trie.longest(text, at);
      if (number == TextTrie::kNone) {
        at = trie.next_begin(text, at + 1);
        continue;
      }
      const AddedToken& token = *tokens[number];
      std::size_t begin = std::max(at, done), end = at + bytes;
      at = trie.next_begin(text, end);
      if (token.single_word && (word_ends(text.substr(0, begin)) || word_begins(text.substr(end)))) continue;
      if (token.lstrip) begin -= std::min(begin - done, trailing_space_bytes(text.substr(0, begin)));
      if (token.rstrip) end += leading_space_bytes(text.substr(end));
      if (end <= begin) continue;
      if (done < begin) put(piece_of(done, begin, Pieces::kNoToken));
      put(piece_of(begin, end, token.id));
      done = end;
    }
    if (done > 0 && done < text.size()) put(piece_of(done, text.size(), Pieces::kNoToken));
  }
};

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, NormalizerPtr normalizer)
    : tokens_(std::move(tokens)), normalizer_(std::move(normalizer)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const auto [by_id, new_id] = by_id_.emplace(token.id, i);
    KEEL_CHECK(new_id, "the added tokens '", tokens_[by_id->second].content, "' and '", token.content,
               "' have one number, ", token.id);
    const auto [by_content, new_content] = by_content_.emplace(token.content, i);
    KEEL_CHECK(new_content, "the added token '", token.content, "' is there twice, as numbers ",
               tokens_[by_content->second].id, " and ", token.id);
  }
  std::vector<const AddedToken*> as_given, normalized;
  for (const bool special : {true, false})
    for (const AddedToken& token : tokens_)
      if (token.special == special) (token.normalized ? normalized : as_given).push_back(&token);
  for (const AddedToken& token : tokens_)
    found_as_.push_back(token.normalized ? normalized_content(token.content, normalizer_) : token.content);
  const auto texts_of = [&](const std::vector<const AddedToken*>& some) {
    std::vector<std::string> texts;
    for (const AddedToken* const token : some) texts.push_back(found_as(*token));
    return texts;
  };
  TextTrie given_trie(texts_of(as_given)), normalized_trie(texts_of(normalized));
  as_given_ = std::make_unique<Finder>(Finder{std::move(as_given), std::move(given_trie)});
  normalized_ = std::make_unique<Finder>(Finder{std::move(normalized), std::move(normalized_trie)});
}

AddedTokens::AddedTokens() : AddedTokens({}, nullptr) {}
AddedTokens::~AddedTokens() = default;
AddedTokens::AddedTokens(AddedTokens&&) noexcept = default;
AddedTokens& AddedTokens::operator=(AddedTokens&&) noexcept = default;

void AddedTokens::extract_and_normalize(Pieces& pieces) const {
  as_given_->extract(pieces);
  if (normalizer_ != nullptr) normalizer_->normalize(pieces);
  normalized_->extract(pieces);
}

const AddedToken* AddedTokens::by_id(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::by_content(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const std::string& AddedTokens::found_as(const AddedToken& token) const {
  return found_as_[static_cast<std::size_t>(&token - tokens_.data())];
}

}  // namespace keel
