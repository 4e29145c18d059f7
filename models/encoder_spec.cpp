// The catalog's entries of BERT and its relatives: keys, config.json, what a size costs.

#include "keel/models/encoder_spec.h"

#include <algorithm>
#include <array>

#include "keel/models/encoder.h"
#include "keel/models/encoder_family.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

// transformers' names of activations; the first of each is what is written.
struct HubActivation {
  std::string_view name;
  ActivationKind kind;
};
constexpr std::array<HubActivation, 8> kHubActivations = {{{"gelu", ActivationKind::gelu},
                                                           {"gelu_new", ActivationKind::gelu_tanh},
                                                           {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
                                                           {"relu", ActivationKind::relu},
                                                           {"silu", ActivationKind::silu},
                                                           {"swish", ActivationKind::silu},
                                                           {"tanh", ActivationKind::tanh},
                                                           {"sigmoid", ActivationKind::sigmoid}}};

ActivationKind activation_of_hub(HubConfig& config, std::string_view key) {
  const std::string name = config.text(key, "gelu");
  const auto found = std::ranges::find(kHubActivations, name, &HubActivation::name);
  if (found != kHubActivations.end()) return found->kind;
  std::string known;
  for (const HubActivation& each : kHubActivations) known += concat(known.empty() ? "" : ", ", each.name);
  config.refuse(key, concat("keel does not compute '", printable(name, 64), "'; it has ", known));
}

// What transformers' class for a head is called behind the family's name.
std::string_view hub_class_of(EncoderHead head) {
  switch (head) {
    case EncoderHead::none: return "Model";
    case EncoderHead::masked_language: return "ForMaskedLM";
    case EncoderHead::sequence: return "ForSequenceClassification";
    case EncoderHead::tokens: return "ForTokenClassification";
    case EncoderHead::replaced: return "ForPreTraining";
  }
  throw Error("unknown head of an encoder");
}

std::string_view hub_problem_of(HeadProblem problem) {
  switch (problem) {
    case HeadProblem::unspecified: return {};
    case HeadProblem::regression: return "regression";
    case HeadProblem::single_label: return "single_label_classification";
    case HeadProblem::multi_label: return "multi_label_classification";
  }
  throw Error("unknown problem of a head");
}

void add_head(Json& config, const HeadOptions& head) {
  if (head.head != EncoderHead::sequence && head.head != EncoderHead::tokens) return;
  KEEL_CHECK(head.labels.empty() || std::ssize(head.labels) == head.outputs, "a head of ", head.outputs,
             " outputs has as many labels, got ", head.labels.size());
  Json names = Json::object(), numbers = Json::object();
  for (std::int64_t i = 0; i < head.outputs; ++i) {
    const std::string label = head.labels.empty() ? concat("LABEL_", i) : head.labels[static_cast<std::size_t>(i)];
    names[std::to_string(i)] = label;
    numbers[label] = i;
  }
  config["id2label"] = names;
  config["label2id"] = numbers;
  const std::string_view problem = hub_problem_of(head.problem);
  if (!problem.empty()) config["problem_type"] = problem;
}

class EncoderSpec : public ModelSpec {
 public:
  EncoderSpec(const ModelEntry& entry, const EncoderOptions& options) : ModelSpec(entry), options_(options) {}

  std::int64_t vocabulary() const override { return options_.vocabulary; }
  std::int64_t block() const override { return options_.block; }
  double dropout() const override {
    return std::max({options_.dropout, options_.attention_dropout, options_.head_dropout});
  }
  // A token attends to all of the sequence: 12 L C T, by two products forward and four backward.
  double training_flops_of_token(std::int64_t parameters) const override {
    const double pairs = options_.layers * static_cast<double>(options_.width) * static_cast<double>(options_.block);
    return 6 * static_cast<double>(parameters) + 12 * pairs;
  }
  std::unique_ptr<EncoderModel> make_encoder(const HeadOptions& head) const override {
    return std::make_unique<Encoder>(options_, head);
  }

  using ModelSpec::hub_config;
  Json hub_config(const HeadOptions& head) const override {
    const EncoderFamily& family = *options_.family;
    const EncoderFamily::HubKeys& keys = family.keys;
    Json config = {{"architectures", Json::array({concat(family.hub_class, hub_class_of(head.head))})},
                   {"model_type", family.hub_type}};
    const auto set = [&](std::string_view key, Json value) {
      if (!key.empty()) config[key] = std::move(value);
    };
    set(keys.activation, std::ranges::find(kHubActivations, options_.activation, &HubActivation::kind)->name);
    set(keys.attention_dropout, options_.attention_dropout);
    set(keys.head_dropout, options_.head_dropout);
    set(keys.embedding, options_.embedding_width());
    set(keys.dropout, options_.dropout);
    set(keys.width, options_.width);
    set(keys.hidden, options_.inner_width());
    set(keys.epsilon, options_.epsilon);
    set("max_position_embeddings", options_.first_position() + options_.block);
    set(keys.heads, std::int64_t{options_.heads});
    set(keys.layers, std::int64_t{options_.layers});
    set("pad_token_id", options_.padding_token);
    set("tie_word_embeddings", true);
    set(keys.token_types, options_.token_types);
    set("vocab_size", options_.vocabulary);
    add_head(config, head);
    return config;
  }

 private:
  EncoderOptions options_;
};

ModelSpecPtr encoder_of_settings(const EncoderFamily& family, const Settings& settings, std::int64_t vocabulary) {
  EncoderOptions options;
  options.family = &family;
  options.vocabulary = vocabulary;
  options.block = settings.integer("model.block");
  options.layers = static_cast<int>(settings.integer("model.layers"));
  options.heads = static_cast<int>(settings.integer("model.heads"));
  options.width = settings.integer("model.width");
  options.hidden = settings.integer("model.hidden");
  options.embedding = family.keys.embedding.empty() ? 0 : settings.integer("model.embedding");
  options.token_types = family.keys.token_types.empty() ? 0 : settings.integer("model.token_types");
  options.padding_token = settings.integer("model.padding_token");
  options.dropout = settings.number("model.dropout");
  options.attention_dropout = settings.number("model.attention_dropout");
  options.head_dropout = settings.number("model.head_dropout");
  options.epsilon = family.epsilon;
  options.activation = parse_activation(settings.text("model.activation"));
  return std::make_unique<EncoderSpec>(*find_model(family.name), options);
}

ModelSpecPtr encoder_of_hub(const EncoderFamily& family, HubConfig& config) {
  const EncoderFamily::HubKeys& keys = family.keys;
  EncoderOptions options;
  options.family = &family;
  options.vocabulary = config.size("vocab_size", kMostHubVocabulary);
  options.layers = static_cast<int>(config.size(keys.layers, kMostHubLayers));
  options.heads = static_cast<int>(config.size(keys.heads, kMostHubHeads));
  options.width = config.size(keys.width, kMostHubWidth);
  options.hidden = config.size(keys.hidden, kMostHubHidden);
  if (!keys.embedding.empty()) options.embedding = config.size(keys.embedding, 128, kMostHubWidth);
  options.token_types = keys.token_types.empty() ? 0 : config.size(keys.token_types, 2, kMostHubTokenTypes);
  if (options.width % options.heads != 0)
    config.refuse(keys.heads, concat(options.heads, " heads do not divide ", keys.width, ' ', options.width));
  options.padding_token = config.integer("pad_token_id", family.padding_token);
  if (options.padding_token < 0 || options.padding_token >= options.vocabulary)
    config.refuse("pad_token_id", concat("expects a token from 0 to ", options.vocabulary - 1, ", as vocab_size is ",
                                         options.vocabulary, ", got ", options.padding_token));
  options.dropout = config.probability(keys.dropout, 0.1);
  options.attention_dropout = config.probability(keys.attention_dropout, 0.1);
  options.head_dropout =
      config.probability(keys.head_dropout, family.head_dropout < 0 ? options.dropout : family.head_dropout);
  options.epsilon = keys.epsilon.empty() ? 1e-12 : config.positive(keys.epsilon, 1e-12);
  options.activation = activation_of_hub(config, keys.activation);
  options.block = config.size("max_position_embeddings", kMostHubPositions) - options.first_position();
  if (options.block < 1) config.refuse("max_position_embeddings", "leaves no position behind the padding token's");
  config.expect("sinusoidal_pos_embds", false);
  config.expect("position_embedding_type", "absolute");
  config.expect("tie_word_embeddings", true);
  config.expect("tie_weights_", true);
  config.ignore(family.unused);
  config.ignore(std::array<std::string_view, 1>{"chunk_size_feed_forward"});
  return std::make_unique<EncoderSpec>(*find_model(family.name), options);
}

std::vector<KeyRow> encoder_rows(const EncoderFamily& family) {
  std::vector<KeyRow> rows = {
      {.key = "model.hidden",
       .type = KeyType::integer,
       .standard = "0",
       .help = "Channels inside the feed-forward part; 0: four times the width.",
       .low = 0,
       .high = 1048576,
       .known_as = "intermediate_size|ffn_dim|hidden_dim"},
      {.key = "model.activation",
       .type = KeyType::choice,
       .standard = "gelu",
       .help = "Inside the feed-forward part; gelu is exact, gelu_tanh its approximation.",
       .choices = "gelu|gelu_tanh|relu|silu|tanh|sigmoid",
       .known_as = "hidden_act"},
      {.key = "model.head_dropout",
       .type = KeyType::number,
       .standard = "=model.dropout",
       .help = "Probability that a channel which a classifier reads is dropped in training.",
       .low = 0,
       .high = 1,
       .on_resume = ResumeRule::warns,
       .known_as = "classifier_dropout|seq_classif_dropout",
       .high_open = true},
      {.key = "model.padding_token",
       .type = KeyType::integer,
       .standard = family.padding_token == 0 ? "0" : "1",
       .help = family.positions_after_padding
                   ? "Number of the padding token, behind which positions begin in the table of positions."
                   : "Number of the padding token, for config.json.",
       .low = 0,
       .high = 16777216,
       .known_as = "pad_token_id"}};
  if (!family.keys.token_types.empty())
    rows.push_back({.key = "model.token_types",
                    .type = KeyType::integer,
                    .standard = family.token_types,
                    .help = "Types of tokens, such as those of a pair's two texts.",
                    .low = 1,
                    .high = 65536,
                    .known_as = "type_vocab_size"});
  if (!family.keys.embedding.empty())
    rows.push_back({.key = "model.embedding",
                    .type = KeyType::integer,
                    .standard = "0",
                    .help = "Width of the embeddings, from which a layer leads to the model's; 0: the model's.",
                    .low = 0,
                    .high = 65536,
                    .known_as = "embedding_size"});
  return rows;
}

// The functions of an entry know nothing but what they are.
template <std::size_t I>
ModelEntry encoder_entry() {
  const EncoderFamily& family = encoder_families()[I];
  ModelEntry entry;
  entry.name = family.name;
  entry.summary = family.summary;
  entry.kind = ModelKind::encoder;
  entry.rows = encoder_rows(family);
  entry.published = family.published;
  entry.of_settings = [](const Settings& settings, std::int64_t vocabulary) {
    return encoder_of_settings(encoder_families()[I], settings, vocabulary);
  };
  entry.hub_type = family.hub_type;
  entry.of_hub = [](HubConfig& config) { return encoder_of_hub(encoder_families()[I], config); };
  entry.naming = family.naming;
  return entry;
}

template <std::size_t... I>
std::vector<ModelEntry> entries_of(std::index_sequence<I...>) {
  std::vector<ModelEntry> entries;
  (entries.push_back(encoder_entry<I>()), ...);
  return entries;
}

}  // namespace

std::vector<ModelEntry> encoder_entries() {
  constexpr std::size_t kFamilies = 5;
  KEEL_CHECK(encoder_families().size() == kFamilies, "every family of encoders has an entry");
  return entries_of(std::make_index_sequence<kFamilies>{});
}

}  // namespace keel
