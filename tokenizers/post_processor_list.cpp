#include <memory>

#include "keel/tokenizers/component_list.h"
#include "keel/tokenizers/spaces.h"

namespace keel {
namespace {

constexpr std::int64_t kLargestTypeId = (std::int64_t{1} << 31) - 1;

std::uint32_t token_id_of(const JsonPlace& id, const TokensOfFile& tokens) {
  return static_cast<std::uint32_t>(id.integer(0, tokens.size - 1));
}

SpacesOfTokens spaces_by_token(const TokensOfFile& tokens) {
  auto spaces = std::make_shared<std::vector<TokenSpaces>>(static_cast<std::size_t>(tokens.size));
  for (std::uint32_t id = 0; id < static_cast<std::uint32_t>(tokens.vocabulary.size()); ++id)
    if (const auto text = tokens.vocabulary.text(id)) (*spaces)[id] = spaces_of(*text);
  for (const AddedToken& token : tokens.added) (*spaces)[token.id] = {.in_text = true};
  return [spaces](std::uint32_t id) { return (*spaces)[id]; };
}

// ["[SEP]", 102]
SpecialToken special_of(const JsonPlace& pair, const TokensOfFile& tokens) {
  const std::vector<JsonPlace> items = pair.items();
  if (items.size() != 2) pair.fail(R"(must be a token's text and its number, as ["[SEP]", 102])");
  return {items[0].text(), token_id_of(items[1], tokens)};
}

std::vector<post_processors::TemplatePart> template_parts(const ComponentFields& fields, std::string_view name,
                                                          const TokensOfFile& tokens) {
  using Part = post_processors::TemplatePart;
  std::vector<Part> parts;
  for (const JsonPlace& item : fields[name].items()) {
    item.allow({"Sequence", "SpecialToken"});
    const bool is_text = item.has("Sequence");
    if (is_text == item.has("SpecialToken")) item.fail("must be one of Sequence and SpecialToken");
    const JsonPlace body = item.at(is_text ? "Sequence" : "SpecialToken");
    body.allow({"id", "type_id"});
    Part part;
    part.type_id = static_cast<std::uint32_t>(body.at("type_id").integer(0, kLargestTypeId));
    if (is_text) {
      part.what = body.at("id").choice<Part::What>({{"A", Part::What::first}, {"B", Part::What::second}});
    } else {
      part.what = Part::What::special;
      const JsonPlace specials = fields["special_tokens"];
      const std::string& id = body.at("id").text();
      if (!specials.has(id)) body.at("id").fail(concat("'", id, "' is none of special_tokens"));
      const JsonPlace special = specials.at(id);
      special.allow({"id", "ids", "tokens"});
      for (const JsonPlace& number : special.at("ids").items()) part.ids.push_back(token_id_of(number, tokens));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

PostProcessorPtr make_template(const ComponentFields& fields, const TokensOfFile& tokens) {
  return post_processors::template_of(template_parts(fields, "single", tokens), template_parts(fields, "pair", tokens));
}

PostProcessorPtr make_bert_processor(const ComponentFields& fields, const TokensOfFile& tokens) {
  return post_processors::bert(special_of(fields["cls"], tokens), special_of(fields["sep"], tokens));
}

PostProcessorPtr make_roberta_processor(const ComponentFields& fields, const TokensOfFile& tokens) {
  const bool trim = fields["trim_offsets"].boolean();
  return post_processors::roberta(special_of(fields["cls"], tokens), special_of(fields["sep"], tokens), trim,
                                  fields["add_prefix_space"].boolean(), trim ? spaces_by_token(tokens) : nullptr);
}

PostProcessorPtr make_byte_level_processor(const ComponentFields& fields, const TokensOfFile& tokens) {
  const bool trim = fields["trim_offsets"].boolean();
  (void)fields["use_regex"].boolean();  // of the pre-tokenizer
  return post_processors::byte_level(trim, fields["add_prefix_space"].boolean(),
                                     trim ? spaces_by_token(tokens) : nullptr);
}

PostProcessorPtr make_post_processors(const ComponentFields& fields, const TokensOfFile& tokens) {
  std::vector<PostProcessorPtr> made;
  for (const JsonPlace& item : fields["processors"].items())
    made.push_back(read_component(item, "post-processor", post_processor_rows(), tokens));
  return post_processors::sequence(std::move(made));
}

}  // namespace

const std::vector<ComponentRow<PostProcessorPtr, const TokensOfFile&>>& post_processor_rows() {
  static constexpr std::string_view kToken = "a token's text and its number";
  static const std::vector<ComponentRow<PostProcessorPtr, const TokensOfFile&>> rows = {
      {"TemplateProcessing",
       {{"single", "parts for one text", ""},
        {"pair", "parts for two", ""},
        {"special_tokens", "what the parts name: id, ids and tokens", ""}},
       make_template},
      {"BertProcessing", {{"sep", kToken, ""}, {"cls", kToken, ""}}, make_bert_processor},
      {"RobertaProcessing",
       {{"sep", kToken, ""},
        {"cls", kToken, ""},
        {"trim_offsets", kBooleanField, ""},
        {"add_prefix_space", kBooleanField, ""}},
       make_roberta_processor},
      {"ByteLevel",
       {{"add_prefix_space", kBooleanField, ""},
        {"trim_offsets", kBooleanField, ""},
        {"use_regex", "without effect", "true"}},
       make_byte_level_processor},
      {"Sequence", {{"processors", "post-processors", ""}}, make_post_processors}};
  return rows;
}

}  // namespace keel
