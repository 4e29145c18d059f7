#include "keel/tokenizers/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/tokenizers/spaces.h"
#include "keel/tokenizers/valid_text.h"

namespace keel {
namespace {

std::string_view checked_text(std::string_view text, std::string& storage) {
  const std::string_view valid = valid_utf8(text, storage);
  KEEL_CHECK(valid.size() < std::numeric_limits<std::uint32_t>::max(), "a text of ", valid.size(),
             " bytes is encoded at once, and at most ", std::numeric_limits<std::uint32_t>::max() - 1,
             " are possible: cut it into documents");
  return valid;
}

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// Whether the token can neither reach across the end of a line nor take it with it.
bool stays_in_line(const AddedToken& token) {
  return token.content.find('\n') == std::string::npos && !(token.lstrip && is_letter_or_digit(token.content.front()));
}

}  // namespace

Pipeline::Pipeline(PipelineParts parts) : parts_(std::move(parts)) {
  KEEL_CHECK(parts_.model != nullptr, "a pipeline needs a model");
  vocabulary_size_ = parts_.model->vocabulary().size();
  for (const AddedToken& token : parts_.added.all())
    vocabulary_size_ = std::max(vocabulary_size_, std::int64_t{token.id} + 1);
  has_borders_ = (parts_.normalizer == nullptr || parts_.normalizer->works_by_lines()) &&
                 parts_.pre_tokenizer != nullptr && parts_.pre_tokenizer->at_lines() == Pattern::AtLines::cuts &&
                 std::all_of(parts_.added.all().begin(), parts_.added.all().end(), stays_in_line);
}

void Pipeline::cut(Pieces& pieces) const {
  parts_.added.extract_and_normalize(pieces);
  if (parts_.pre_tokenizer != nullptr) parts_.pre_tokenizer->cut(pieces);
}

std::vector<std::uint32_t> Pipeline::encode(std::string_view text) const {
  std::string storage;
  Pieces pieces;
  pieces.reset(checked_text(text, storage), false);
  cut(pieces);
  std::vector<std::uint32_t> ids;
  ids.reserve(text.size() / 4);
  for (const Pieces::Piece& piece : pieces.pieces()) {
    if (piece.is_token()) ids.push_back(piece.token);
    else parts_.model->append_ids(pieces.text(piece), ids);
  }
  return ids;
}

Encoding Pipeline::encode_one(std::string_view text, std::uint32_t type_id) const {
  Pieces pieces;
  pieces.reset(text, true);
  cut(pieces);
  Encoding encoding;
  const auto sequence = static_cast<std::int32_t>(type_id);
  std::vector<PieceToken> tokens;
  std::int32_t word = 0;
  for (const Pieces::Piece& piece : pieces.pieces()) {
    if (piece.is_token()) {
      encoding.add(piece.token, type_id, pieces.origin(piece.bytes), word, sequence, spaces_of(pieces.text(piece)));
    } else {
      tokens.clear();
      parts_.model->tokenize(pieces.text(piece), tokens);
      for (const PieceToken& token : tokens) {
        const TextSpan bytes = {piece.bytes.begin + token.bytes.begin, piece.bytes.begin + token.bytes.end};
        encoding.add(token.id, type_id, pieces.origin(bytes), word, sequence);
      }
    }
    ++word;
  }
  return encoding;
}

Encoding Pipeline::encode(const TextPair& text, const EncodeOptions& options) const {
  std::string storage, second_storage;
  TextPair valid = {checked_text(text.first, storage), std::nullopt};
  Encoding first = encode_one(valid.first, 0), second;
  if (text.second) {
    valid.second = checked_text(*text.second, second_storage);
    second = encode_one(*valid.second, 1);
  }
  Encoding* const pair = text.second ? &second : nullptr;
  const PostProcessor* const processor = parts_.post_processor.get();
  if (const std::optional<Truncation>& truncation = options.truncation ? options.truncation : parts_.truncation) {
    const std::int64_t specials = options.specials && processor != nullptr ? processor->added(pair != nullptr) : 0;
    truncate(first, pair, specials, *truncation);
  }
  return post_process(processor, valid, std::move(first), pair, options.specials);
}

std::size_t Pipeline::last_border(std::string_view text) const {
  if (!has_borders_) return 0;
  for (std::size_t at = text.size(); at-- > 2;)
    if (text[at - 1] == '\n' && is_letter_or_digit(text[at]) && text[at - 2] > ' ' && text[at - 2] < 0x7f) return at;
  return 0;
}

std::string Pipeline::decode(std::span<const std::uint32_t> tokens, bool skip_specials) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const AddedToken* const added = parts_.added.by_id(tokens[i]);
    if (added != nullptr) {
      if (!skip_specials || !added->special) texts.push_back(parts_.added.found_as(*added));
      continue;
    }
    const std::optional<std::string_view> text = parts_.model->vocabulary().text(tokens[i]);
    KEEL_CHECK(text.has_value(), "token ", tokens[i], " at position ", i, " is none of the vocabulary's ",
               vocabulary_size_);
    texts.emplace_back(*text);
  }
  if (parts_.decoder != nullptr) parts_.decoder->decode(texts);
  std::string whole;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0 && parts_.decoder == nullptr) whole += ' ';
    whole += texts[i];
  }
  return whole;
}

std::optional<std::string> Pipeline::token_text(std::uint32_t token) const {
  if (const AddedToken* const added = parts_.added.by_id(token)) return parts_.added.found_as(*added);
  const std::optional<std::string_view> text = parts_.model->vocabulary().text(token);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::optional<std::uint32_t> Pipeline::token_of(std::string_view text) const {
  if (const AddedToken* const added = parts_.added.by_content(text)) return added->id;
  const std::uint32_t token = parts_.model->vocabulary().find(text);
  return token == Vocabulary::kNone ? std::nullopt : std::optional(token);
}

}  // namespace keel
