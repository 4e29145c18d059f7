#include "keel/tokenizers/base64.h"
#include "keel/tokenizers/component_list.h"

namespace keel {
namespace {

NormalizerPtr make_bert_normalizer(const ComponentFields& fields) {
  using Strip = normalizers::BertOptions::StripAccents;
  normalizers::BertOptions options;
  options.clean_text = fields["clean_text"].boolean();
  options.handle_chinese_chars = fields["handle_chinese_chars"].boolean();
  options.lowercase = fields["lowercase"].boolean();
  if (fields.has("strip_accents")) options.strip_accents = fields["strip_accents"].boolean() ? Strip::yes : Strip::no;
  return normalizers::bert(options);
}

NormalizerPtr make_replace_normalizer(const ComponentFields& fields) {
  const JsonPlace pattern = fields["pattern"];
  pattern.allow({"String", "Regex"});
  if (pattern.has("String") == pattern.has("Regex")) pattern.fail(concat("must be ", kPatternField));
  if (pattern.has("String")) return normalizers::replace_text(pattern.at("String").text(), fields["content"].text());
  const JsonPlace expression = pattern.at("Regex");
  return expression.located(
      [&] { return normalizers::replace_expression(expression.text(), fields["content"].text()); });
}

NormalizerPtr make_precompiled(const ComponentFields& fields) {
  const JsonPlace charsmap = fields["precompiled_charsmap"];
  return charsmap.located([&] { return normalizers::precompiled(decode_base64(charsmap.text())); });
}

NormalizerPtr make_normalizers(const ComponentFields& fields) {
  std::vector<NormalizerPtr> made;
  for (const JsonPlace& item : fields["normalizers"].items())
    made.push_back(read_component(item, "normalizer", normalizer_rows()));
  return normalizers::sequence(std::move(made));
}

}  // namespace

const std::vector<ComponentRow<NormalizerPtr>>& normalizer_rows() {
  using Fields = const ComponentFields&;
  static const std::vector<ComponentRow<NormalizerPtr>> rows = {
      {"BertNormalizer",
       {{"clean_text", kBooleanField, ""},
        {"handle_chinese_chars", kBooleanField, ""},
        {"strip_accents", "true, false or null: as lowercase", "null"},
        {"lowercase", kBooleanField, ""}},
       make_bert_normalizer},
      {"NFC", {}, [](Fields) { return normalizers::nfc(); }},
      {"NFD", {}, [](Fields) { return normalizers::nfd(); }},
      {"NFKC", {}, [](Fields) { return normalizers::nfkc(); }},
      {"NFKD", {}, [](Fields) { return normalizers::nfkd(); }},
      {"Lowercase", {}, [](Fields) { return normalizers::lowercase(); }},
      {"Strip",
       {{"strip_left", kBooleanField, ""}, {"strip_right", kBooleanField, ""}},
       [](Fields f) { return normalizers::strip(f["strip_left"].boolean(), f["strip_right"].boolean()); }},
      {"StripAccents", {}, [](Fields) { return normalizers::strip_accents(); }},
      {"Nmt", {}, [](Fields) { return normalizers::nmt(); }},
      {"Precompiled", {{"precompiled_charsmap", "a character map of SentencePiece, as base64", ""}}, make_precompiled},
      {"Prepend", {{"prepend", "a string", ""}}, [](Fields f) { return normalizers::prepend(f["prepend"].text()); }},
      {"Replace", {{"pattern", kPatternField, ""}, {"content", "a string", ""}}, make_replace_normalizer},
      {"ByteLevel", {}, [](Fields) { return normalizers::byte_level(); }},
      {"Sequence", {{"normalizers", "normalizers", ""}}, make_normalizers}};
  return rows;
}

}  // namespace keel
