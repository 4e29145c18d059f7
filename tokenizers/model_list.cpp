#include "keel/tokenizers/component_list.h"

namespace keel {
namespace {

constexpr std::int64_t kLongestWord = std::int64_t{1} << 31;

Vocabulary vocabulary_of(const ComponentFields& fields, ModelTokens& tokens) {
  if (!tokens.has_text) fields.place().fail("has no vocab, or none that is an object of texts and numbers");
  return Vocabulary(std::move(tokens.by_text));
}

std::optional<std::string> text_or_none(const ComponentFields& fields, std::string_view name) {
  return fields.has(name) ? std::optional(fields[name].text()) : std::nullopt;
}

TokenModelPtr make_bpe(const ComponentFields& fields, ModelTokens& tokens) {
  if (fields.has("dropout") && fields["dropout"].number() != 0)
    fields["dropout"].fail("texts are encoded without dropout: set it to null", ErrorKind::unsupported);
  if (!tokens.has_merges) fields.place().fail("has no merges");
  token_models::BpeOptions options;
  options.unknown = text_or_none(fields, "unk_token");
  options.continuing_prefix = text_or_none(fields, "continuing_subword_prefix");
  options.end_suffix = text_or_none(fields, "end_of_word_suffix");
  options.fuse_unknown = fields["fuse_unk"].boolean();
  options.byte_fallback = fields["byte_fallback"].boolean();
  options.ignore_merges = fields["ignore_merges"].boolean();
  return token_models::bpe(vocabulary_of(fields, tokens), tokens.merges, options);
}

TokenModelPtr make_word_piece(const ComponentFields& fields, ModelTokens& tokens) {
  token_models::WordPieceOptions options;
  options.unknown = fields["unk_token"].text();
  options.continuing_prefix = fields["continuing_subword_prefix"].text();
  options.longest_word = fields["max_input_chars_per_word"].integer(0, kLongestWord);
  return token_models::word_piece(vocabulary_of(fields, tokens), options);
}

TokenModelPtr make_word_level(const ComponentFields& fields, ModelTokens& tokens) {
  return token_models::word_level(vocabulary_of(fields, tokens), fields["unk_token"].text());
}

TokenModelPtr make_unigram(const ComponentFields& fields, ModelTokens& tokens) {
  if (!tokens.has_scores) fields.place().fail("has no vocab, or none that is an array of texts and scores");
  token_models::UnigramOptions options;
  const auto size = static_cast<std::int64_t>(tokens.by_score.size());
  if (fields.has("unk_id")) options.unknown = static_cast<std::uint32_t>(fields["unk_id"].integer(0, size - 1));
  options.byte_fallback = fields["byte_fallback"].boolean();
  return token_models::unigram(tokens.by_score, options);
}

}  // namespace

const std::vector<ComponentRow<TokenModelPtr, ModelTokens&>>& model_rows() {
  static const std::vector<ComponentRow<TokenModelPtr, ModelTokens&>> rows = {
      {"BPE",
       {{"dropout", "null or 0", "null"},
        {"unk_token", "a token or null", "null"},
        {"continuing_subword_prefix", "a string or null", "null"},
        {"end_of_word_suffix", "a string or null", "null"},
        {"fuse_unk", kBooleanField, "false"},
        {"byte_fallback", kBooleanField, "false"},
        {"ignore_merges", kBooleanField, "false"}},
       make_bpe},
      {"WordPiece",
       {{"unk_token", "a token", ""},
        {"continuing_subword_prefix", "a string", ""},
        {"max_input_chars_per_word", "characters", ""}},
       make_word_piece},
      {"WordLevel", {{"unk_token", "a token", ""}}, make_word_level},
      {"Unigram",
       {{"unk_id", "a token's number or null", "null"}, {"byte_fallback", kBooleanField, "false"}},
       make_unigram}};
  return rows;
}

}  // namespace keel
