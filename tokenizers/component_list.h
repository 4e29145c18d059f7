#pragma once
// The components of tokenizer.json: one list of rows a kind, from which come reading, messages and documentation.

#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/tokenizers/added_tokens.h"
#include "keel/tokenizers/decoder.h"
#include "keel/tokenizers/json_place.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/post_processor.h"
#include "keel/tokenizers/pre_tokenizer.h"
#include "keel/tokenizers/token_model.h"

namespace keel {

struct ComponentField {
  std::string_view name;
  std::string_view what;      // which values it takes
  std::string_view fallback;  // as JSON; empty: the field is required
};

// A component's fields, of which each is one of its row's.
class ComponentFields {
 public:
  ComponentFields(const JsonPlace& component, const std::vector<ComponentField>& declared);

  // The value, or what stands for it.
  JsonPlace operator[](std::string_view name) const;
  bool has(std::string_view name) const { return component_.has(name) && !component_.at(name).is_null(); }
  const JsonPlace& place() const { return component_; }

 private:
  JsonPlace component_;
  std::vector<std::pair<std::string_view, Json>> fallbacks_;
};

template <class Made, class... Context>
struct ComponentRow {
  std::string_view type;
  std::vector<ComponentField> fields;
  Made (*make)(const ComponentFields& fields, Context... context);
};

// `type` of the component, and the row that has it; an unknown one is an Error that lists what is supported.
std::size_t find_component(const JsonPlace& component, std::string_view kind,
                           const std::vector<std::string_view>& types);

template <class Made, class... Context>
Made read_component(const JsonPlace& component, std::string_view kind,
                    const std::vector<ComponentRow<Made, Context...>>& rows, std::type_identity_t<Context>... context) {
  std::vector<std::string_view> types;
  for (const auto& row : rows) types.push_back(row.type);
  const auto& row = rows[find_component(component, kind, types)];
  const ComponentFields fields(component, row.fields);
  return component.located([&] { return row.make(fields, context...); });
}

// What models are made of beside their fields.
struct ModelTokens {
  std::vector<std::pair<std::string, std::uint32_t>> by_text;  // vocab, an object
  std::vector<std::pair<std::string, double>> by_score;        // vocab, an array
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_text = false, has_scores = false, has_merges = false;
};

// What post-processors need to know of the others.
struct TokensOfFile {
  const Vocabulary& vocabulary;
  const std::vector<AddedToken>& added;
  std::int64_t size = 0;  // of both
};

const std::vector<ComponentRow<NormalizerPtr>>& normalizer_rows();
const std::vector<ComponentRow<PreTokenizerPtr>>& pre_tokenizer_rows();
const std::vector<ComponentRow<TokenModelPtr, ModelTokens&>>& model_rows();
const std::vector<ComponentRow<PostProcessorPtr, const TokensOfFile&>>& post_processor_rows();
const std::vector<ComponentRow<DecoderPtr>>& decoder_rows();

// Fields that several kinds have.
PrependScheme prepend_scheme_of(const ComponentFields& metaspace);
PatternPtr pattern_of(const JsonPlace& pattern);
inline constexpr std::string_view kBooleanField = "true or false";
inline constexpr std::string_view kPatternField = R"({"String": TEXT} or {"Regex": EXPRESSION})";

}  // namespace keel
