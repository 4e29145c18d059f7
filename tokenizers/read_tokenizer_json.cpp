#include "keel/runtime/printable.h"
#include "keel/tokenizers/pipeline.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "keel/tokenizers/tokenizer_json.h"

namespace keel {
namespace {

constexpr std::int64_t kLongestEncoding = std::int64_t{1} << 24;  // that a file may ask for, in tokens

Side side_of(const JsonPlace& object) {
  if (!object.has("direction")) return Side::right;
  return object.at("direction").choice<Side>({{"Right", Side::right}, {"Left", Side::left}});
}

Truncation truncation_of(const JsonPlace& object) {
  object.allow({"direction", "max_length", "strategy", "stride"});
  Truncation truncation;
  truncation.length = object.at("max_length").integer(0, kLongestEncoding);
  truncation.stride = object.at("stride").integer(0, kLongestEncoding);
  using Strategy = Truncation::Strategy;
  truncation.strategy = object.at("strategy")
                            .choice<Strategy>({{"LongestFirst", Strategy::longest_first},
                                               {"OnlyFirst", Strategy::only_first},
                                               {"OnlySecond", Strategy::only_second}});
  truncation.side = side_of(object);
  return truncation;
}

Padding padding_of(const JsonPlace& object, std::int64_t tokens) {
  object.allow({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  Padding padding;
  const JsonPlace strategy = object.at("strategy");
  if (strategy.value().is_object()) {
    strategy.allow({"Fixed"});
    padding.to = Padding::To::length;
    padding.length = strategy.at("Fixed").integer(0, kLongestEncoding);
  } else if (!strategy.value().is_string() || strategy.text() != "BatchLongest") {
    strategy.fail(R"(must be "BatchLongest" or {"Fixed": LENGTH})");
  }
  padding.side = side_of(object);
  if (object.has("pad_to_multiple_of") && !object.at("pad_to_multiple_of").is_null())
    padding.multiple_of = object.at("pad_to_multiple_of").integer(0, kLongestEncoding);
  padding.id = static_cast<std::uint32_t>(object.at("pad_id").integer(0, tokens - 1));
  padding.type_id = static_cast<std::uint32_t>(object.at("pad_type_id").integer(0, (std::int64_t{1} << 31) - 1));
  (void)object.at("pad_token").text();
  return padding;
}

std::vector<AddedToken> added_tokens_of(const JsonPlace& list, const Vocabulary& vocabulary, std::int64_t largest_id) {
  std::vector<AddedToken> tokens;
  for (const JsonPlace& item : list.items()) {
    item.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = item.at("content").text();
    if (token.content.empty()) item.at("content").fail("is empty");
    token.id = static_cast<std::uint32_t>(item.at("id").integer(0, largest_id));
    token.single_word = item.at("single_word").boolean();
    token.lstrip = item.at("lstrip").boolean();
    token.rstrip = item.at("rstrip").boolean();
    token.normalized = item.at("normalized").boolean();
    token.special = item.at("special").boolean();
    const std::uint32_t known = vocabulary.find(token.content);
    if (known != Vocabulary::kNone && known != token.id)
      item.at("id").fail(
          concat("is ", token.id, ", but '", printable(token.content), "' is token ", known, " of model.vocab"));
    const auto other = known == Vocabulary::kNone ? vocabulary.text(token.id) : std::nullopt;
    if (other) item.at("id").fail(concat("is ", token.id, ", which is '", printable(*other), "' in model.vocab"));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Files of old do not name the kind of model.
void name_model(Json& model, const ModelTokens& tokens) {
  if (!model.is_object() || model.contains("type")) return;
  model["type"] = tokens.has_merges                             ? "BPE"
                  : model.contains("continuing_subword_prefix") ? "WordPiece"
                  : tokens.has_scores                           ? "Unigram"
                                                                : "WordLevel";
}

std::string name_of(const std::string& model_type) {
  return model_type == "BPE"         ? "bpe"
         : model_type == "WordPiece" ? "word_piece"
         : model_type == "WordLevel" ? "word_level"
                                     : "unigram";
}

// A component that may be null or missing.
template <class Made, class... Context>
Made optional_component(const JsonPlace& root, std::string_view name, std::string_view kind,
                        const std::vector<ComponentRow<Made, Context...>>& rows,
                        std::type_identity_t<Context>... context) {
  if (!root.has(name) || root.at(name).is_null()) return nullptr;
  return read_component(root.at(name), kind, rows, context...);
}

}  // namespace

TokenizerPtr read_tokenizer_json(std::string_view json, const std::string& place) {
  TokenizerJson file = parse_tokenizer_json(json, place);
  if (file.rest.is_object() && file.rest.contains("model")) name_model(file.rest["model"], file.tokens);
  const JsonPlace root(file.rest, place);
  root.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
              "decoder", "model"});
  if (root.has("version")) (void)root.at("version").choice<int>({{"1.0", 1}});
  PipelineParts parts;
  parts.name = name_of(root.at("model").at("type").text());
  parts.model = read_component(root.at("model"), "model", model_rows(), file.tokens);
  parts.normalizer = optional_component(root, "normalizer", "normalizer", normalizer_rows());
  parts.pre_tokenizer = optional_component(root, "pre_tokenizer", "pre-tokenizer", pre_tokenizer_rows());
  std::vector<AddedToken> added;
  const Vocabulary& vocabulary = parts.model->vocabulary();
  if (root.has("added_tokens")) {
    const JsonPlace list = root.at("added_tokens");
    added = added_tokens_of(list, vocabulary, largest_token_id(json.size()));
    list.located([&] { parts.added = AddedTokens(added, parts.normalizer); });
  } else {
    parts.added = AddedTokens({}, parts.normalizer);
  }
  TokensOfFile tokens = {vocabulary, added, vocabulary.size()};
  for (const AddedToken& token : added) tokens.size = std::max(tokens.size, std::int64_t{token.id} + 1);
  parts.post_processor = optional_component(root, "post_processor", "post-processor", post_processor_rows(), tokens);
  parts.decoder = optional_component(root, "decoder", "decoder", decoder_rows());
  if (root.has("truncation") && !root.at("truncation").is_null())
    parts.truncation = truncation_of(root.at("truncation"));
  if (root.has("padding") && !root.at("padding").is_null()) parts.padding = padding_of(root.at("padding"), tokens.size);
  parts.json = std::string(json);
  return std::make_shared<const Pipeline>(std::move(parts));
}

}  // namespace keel
