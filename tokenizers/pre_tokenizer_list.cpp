#include "keel/tokenizers/component_list.h"

namespace keel {
namespace {

constexpr std::int64_t kLongestPiece = std::int64_t{1} << 31;
constexpr std::string_view kDelimiterField = "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous";

Delimiter delimiter_of(const JsonPlace& behavior) {
  return behavior.choice<Delimiter>({{"Removed", Delimiter::removed},
                                     {"Isolated", Delimiter::isolated},
                                     {"MergedWithPrevious", Delimiter::merged_with_previous},
                                     {"MergedWithNext", Delimiter::merged_with_next},
                                     {"Contiguous", Delimiter::contiguous}});
}

PreTokenizerPtr make_byte_level_cutter(const ComponentFields& fields) {
  (void)fields["trim_offsets"].boolean();  // of the post-processor
  return pre_tokenizers::byte_level(fields["add_prefix_space"].boolean(), fields["use_regex"].boolean());
}

PreTokenizerPtr make_metaspace_cutter(const ComponentFields& fields) {
  return pre_tokenizers::metaspace(fields["replacement"].character(), prepend_scheme_of(fields),
                                   fields["split"].boolean());
}

PreTokenizerPtr make_pre_tokenizers(const ComponentFields& fields) {
  std::vector<PreTokenizerPtr> made;
  for (const JsonPlace& item : fields["pretokenizers"].items())
    made.push_back(read_component(item, "pre-tokenizer", pre_tokenizer_rows()));
  return pre_tokenizers::sequence(std::move(made));
}

}  // namespace

const std::vector<ComponentRow<PreTokenizerPtr>>& pre_tokenizer_rows() {
  using Fields = const ComponentFields&;
  static const std::vector<ComponentRow<PreTokenizerPtr>> rows = {
      {"ByteLevel",
       {{"add_prefix_space", kBooleanField, ""},
        {"trim_offsets", kBooleanField, ""},
        {"use_regex", kBooleanField, "true"}},
       make_byte_level_cutter},
      {"Whitespace", {}, [](Fields) { return pre_tokenizers::whitespace(); }},
      {"WhitespaceSplit", {}, [](Fields) { return pre_tokenizers::whitespace_split(); }},
      {"BertPreTokenizer", {}, [](Fields) { return pre_tokenizers::bert(); }},
      {"Metaspace",
       {{"replacement", "a character", ""},
        {"prepend_scheme", "always, first or never", R"("always")"},
        {"split", kBooleanField, "true"},
        {"add_prefix_space", "true, or false for never, in files of old", "null"},
        {"str_rep", "of files of old, without effect", "null"}},
       make_metaspace_cutter},
      {"Split",
       {{"pattern", kPatternField, ""}, {"behavior", kDelimiterField, ""}, {"invert", kBooleanField, ""}},
       [](Fields f) {
         return pre_tokenizers::split(pattern_of(f["pattern"]), delimiter_of(f["behavior"]), f["invert"].boolean());
       }},
      {"Punctuation",
       {{"behavior", kDelimiterField, R"("Isolated")"}},
       [](Fields f) { return pre_tokenizers::punctuation(delimiter_of(f["behavior"])); }},
      {"Digits",
       {{"individual_digits", kBooleanField, ""}},
       [](Fields f) { return pre_tokenizers::digits(f["individual_digits"].boolean()); }},
      {"CharDelimiterSplit",
       {{"delimiter", "a character", ""}},
       [](Fields f) { return pre_tokenizers::char_delimiter(f["delimiter"].character()); }},
      {"UnicodeScripts", {}, [](Fields) { return pre_tokenizers::unicode_scripts(); }},
      {"FixedLength",
       {{"length", "characters, 1 or more", "5"}},
       [](Fields f) { return pre_tokenizers::fixed_length(f["length"].integer(1, kLongestPiece)); }},
      {"Sequence", {{"pretokenizers", "pre-tokenizers", ""}}, make_pre_tokenizers}};
  return rows;
}

}  // namespace keel
