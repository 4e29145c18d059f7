#include "keel/tokenizers/component_list.h"

namespace keel {
namespace {

constexpr std::int64_t kMostStripped = std::int64_t{1} << 31;

DecoderPtr make_byte_level_decoder(const ComponentFields& fields) {
  for (const std::string_view name : {"add_prefix_space", "trim_offsets", "use_regex"}) (void)fields[name].boolean();
  return decoders::byte_level();
}

DecoderPtr make_metaspace_decoder(const ComponentFields& fields) {
  (void)fields["split"].boolean();
  return decoders::metaspace(fields["replacement"].character(), prepend_scheme_of(fields));
}

DecoderPtr make_decoders(const ComponentFields& fields) {
  std::vector<DecoderPtr> made;
  for (const JsonPlace& item : fields["decoders"].items())
    made.push_back(read_component(item, "decoder", decoder_rows()));
  return decoders::sequence(std::move(made));
}

}  // namespace

const std::vector<ComponentRow<DecoderPtr>>& decoder_rows() {
  using Fields = const ComponentFields&;
  static const std::vector<ComponentRow<DecoderPtr>> rows = {
      {"ByteLevel",
       {{"add_prefix_space", "without effect", "true"},
        {"trim_offsets", "without effect", "true"},
        {"use_regex", "without effect", "true"}},
       make_byte_level_decoder},
      {"ByteFallback", {}, [](Fields) { return decoders::byte_fallback(); }},
      {"WordPiece",
       {{"prefix", "a string", ""}, {"cleanup", kBooleanField, ""}},
       [](Fields f) { return decoders::word_piece(f["prefix"].text(), f["cleanup"].boolean()); }},
      {"Metaspace",
       {{"replacement", "a character", ""},
        {"prepend_scheme", "always, first or never", R"("always")"},
        {"split", "without effect", "true"},
        {"add_prefix_space", "true, or false for never, in files of old", "null"},
        {"str_rep", "of files of old, without effect", "null"}},
       make_metaspace_decoder},
      {"BPEDecoder", {{"suffix", "a string", ""}}, [](Fields f) { return decoders::bpe(f["suffix"].text()); }},
      {"Fuse", {}, [](Fields) { return decoders::fuse(); }},
      {"Strip",
       {{"content", "a character", ""}, {"start", "characters", ""}, {"stop", "characters", ""}},
       [](Fields f) {
         return decoders::strip(f["content"].character(), f["start"].integer(0, kMostStripped),
                                f["stop"].integer(0, kMostStripped));
       }},
      {"Replace",
       {{"pattern", kPatternField, ""}, {"content", "a string", ""}},
       [](Fields f) { return decoders::replace(pattern_of(f["pattern"]), f["content"].text()); }},
      {"CTC",
       {{"pad_token", "a string", ""}, {"word_delimiter_token", "a string", ""}, {"cleanup", kBooleanField, ""}},
       [](Fields f) {
         return decoders::ctc(f["pad_token"].text(), f["word_delimiter_token"].text(), f["cleanup"].boolean());
       }},
      {"Sequence", {{"decoders", "decoders", ""}}, make_decoders}};
  return rows;
}

}  // namespace keel
