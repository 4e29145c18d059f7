#include "keel/models/decoder_spec.h"

#include <algorithm>
#include <array>

#include "keel/models/decoder.h"
#include "keel/models/rotary_config.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

enum class Windows : unsigned char { none, all, by_layer };

// What a config.json means where it says nothing, and the keys that it may have.
struct DecoderFamily {
  std::string_view name, architecture, summary;
  double theta;    // of keys of one's own; config.json means kHubTheta
  double epsilon;  // likewise
  std::int64_t positions;
  std::int64_t kv_heads;   // 0: as many as heads
  std::int64_t head_size;  // 0: width / heads
  bool qkv_bias;           // always
  bool attention_bias;     // has the key
  bool mlp_bias;           // has the key
  bool head_norms;
  Windows windows;
  std::string_view window;  // of keys of one's own
};
constexpr double kHubTheta = 10000, kHubEpsilon = 1e-6;
constexpr std::int64_t kHubWindow = 4096, kHubWindowedFrom = 28;

constexpr std::array<DecoderFamily, 4> kFamilies = {{
    {"llama", "LlamaForCausalLM",
     "Llama 2 and 3: rotary positions, RMS norms before each part, gated feed-forward parts, shared key/value heads",
     10000, 1e-5, 2048, 0, 0, false, true, true, false, Windows::none, ""},
    {"mistral", "MistralForCausalLM", "Mistral: a Llama in which a token sees those in a window before it", 10000, 1e-5,
     131072, 8, 0, false, false, false, false, Windows::all, "4096"},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2 and 2.5: a Llama with biases of queries, keys and values", 1000000, 1e-6,
     32768, 32, 0, true, false, false, false, Windows::by_layer, "0"},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3: a Llama whose queries and keys are normed head by head", 1000000, 1e-6, 32768,
     32, 128, false, true, false, true, Windows::by_layer, "0"},
}};

struct GateName {
  std::string_view name;
  GateKind kind;
};
// What is written is the first name of a kind.
constexpr std::array<GateName, 8> kGateNames = {{{"silu", GateKind::silu},
                                                 {"swish", GateKind::silu},
                                                 {"gelu", GateKind::gelu},
                                                 {"gelu_pytorch_tanh", GateKind::gelu_tanh},
                                                 {"gelu_new", GateKind::gelu_tanh},
                                                 {"gelu_fast", GateKind::gelu_tanh},
                                                 {"relu", GateKind::relu},
                                                 {"sigmoid", GateKind::sigmoid}}};

GateKind read_gate(HubConfig& config) {
  const std::string name = config.text("hidden_act", "silu");
  const auto* const found = std::ranges::find(kGateNames, name, &GateName::name);
  if (found != kGateNames.end()) return found->kind;
  std::string known;
  for (const GateName& each : kGateNames) known += concat(known.empty() ? "" : ", ", each.name);
  config.refuse("hidden_act", concat("keel's ", config.model_type(), " has ", known, ", and no '", name, "'"));
}

class DecoderSpec : public ModelSpec {
 public:
  DecoderSpec(const DecoderFamily& family, DecoderOptions options)
      : ModelSpec(*find_model(family.name)), family_(family), options_(std::move(options)) {}

  std::int64_t vocabulary() const override { return options_.vocabulary; }
  std::int64_t block() const override { return options_.block; }
  double dropout() const override { return std::max(options_.layer.dropout, options_.layer.attention_dropout); }
  double training_flops_of_token(std::int64_t parameters) const override {
    return keel::training_flops_of_token(options_, parameters);
  }
  std::unique_ptr<CausalModel> make_decoder() const override { return std::make_unique<RotaryDecoder>(options_); }
  Json hub_config(const HeadOptions& head) const override;

 private:
  void write_windows(Json& config) const;

  const DecoderFamily& family_;
  DecoderOptions options_;
};

// Dropout of the stream is a setting of keel's training, and no part of the form.
Json DecoderSpec::hub_config(const HeadOptions& /*head*/) const {
  const DecoderLayerOptions& layer = options_.layer;
  Json config = {{"architectures", Json::array({family_.architecture})},
                 {"model_type", family_.name},
                 {"attention_dropout", layer.attention_dropout},
                 {"head_dim", layer.head_size},
                 {"hidden_act", std::ranges::find(kGateNames, layer.gate, &GateName::kind)->name},
                 {"hidden_size", layer.width},
                 {"initializer_range", layer.deviation},
                 {"intermediate_size", layer.hidden},
                 {"max_position_embeddings", options_.rotary.max_positions},
                 {"num_attention_heads", std::int64_t{layer.heads}},
                 {"num_hidden_layers", std::int64_t{options_.layers}},
                 {"num_key_value_heads", std::int64_t{layer.kv_heads}},
                 {"rms_norm_eps", layer.epsilon},
                 {"tie_word_embeddings", options_.tied},
                 {"use_cache", true},
                 {"vocab_size", options_.vocabulary}};
  write_rotary(config, options_.rotary);
  if (family_.attention_bias) config["attention_bias"] = layer.qkv_bias;
  if (family_.mlp_bias) config["mlp_bias"] = layer.mlp_bias;
  write_windows(config);
  return config;
}

void DecoderSpec::write_windows(Json& config) const {
  if (family_.windows == Windows::none) return;
  const bool any = std::ranges::find(options_.windowed, true) != options_.windowed.end();
  config["sliding_window"] = any ? Json(options_.layer.window) : Json();
  if (family_.windows != Windows::by_layer) return;
  config["use_sliding_window"] = any;
  const auto first = std::ranges::find(options_.windowed, true) - options_.windowed.begin();
  config["max_window_layers"] = any ? std::int64_t{first} : std::int64_t{options_.layers};
  Json types = Json::array();
  for (int i = 0; i < options_.layers; ++i)
    types.push_back(options_.window(i) != 0 ? "sliding_attention" : "full_attention");
  config["layer_types"] = std::move(types);
}

// Where config.json says which layers have a window.
void read_windows_by_layer(HubConfig& config, DecoderOptions& options) {
  const bool uses = config.flag("use_sliding_window", false);
  const std::int64_t window = config.is_null("sliding_window") ? 0 : config.integer("sliding_window", kHubWindow);
  const std::int64_t from = config.integer("max_window_layers", kHubWindowedFrom);
  const Json types = config.value("layer_types");
  options.layer.window = uses ? window : 0;
  if (types.is_null()) {
    if (options.layer.window > 0)
      for (int i = 0; i < options.layers; ++i) options.windowed.push_back(i >= from);
    return;
  }
  if (!types.is_array() || std::ssize(types.items()) != options.layers)
    config.refuse("layer_types", concat("expects a list of ", options.layers, " texts, one for each layer"));
  for (const Json& type : types.items()) {
    const std::string text = type.is_string() ? type.string() : type.dump();
    if (text != "full_attention" && text != "sliding_attention")
      config.refuse("layer_types", concat("a layer has full_attention or sliding_attention, got ", text));
    if (text == "sliding_attention" && options.layer.window == 0)
      config.refuse("layer_types", "a layer has sliding_attention, and there is no sliding_window that is used");
    options.windowed.push_back(text == "sliding_attention");
  }
}

void read_windows(HubConfig& config, const DecoderFamily& family, DecoderOptions& options) {
  switch (family.windows) {
    case Windows::none: return;
    case Windows::all:
      options.layer.window = config.is_null("sliding_window") ? 0 : config.integer("sliding_window", kHubWindow);
      break;
    case Windows::by_layer: read_windows_by_layer(config, options);
  }
  if (const std::int64_t window = config.has("sliding_window") ? config.integer("sliding_window") : 1;
      window < 1 || window > kMostHubPositions)
    config.refuse("sliding_window", concat("expects at least 1 and at most ", kMostHubPositions,
                                           ", or null where there is none, got ", window));
  if (family.windows == Windows::all)
    options.windowed.assign(static_cast<std::size_t>(options.layers), options.layer.window > 0);
  if (std::ranges::find(options.windowed, true) == options.windowed.end()) {
    options.windowed.clear();
    options.layer.window = 0;
  }
}

void read_heads(HubConfig& config, const DecoderFamily& family, DecoderLayerOptions& layer) {
  layer.heads = static_cast<int>(config.size("num_attention_heads", kMostHubHeads));
  const std::int64_t missing =
      family.kv_heads == 0 || config.is_null("num_key_value_heads") ? layer.heads : family.kv_heads;
  layer.kv_heads = static_cast<int>(config.size("num_key_value_heads", missing, kMostHubHeads));
  if (layer.heads % layer.kv_heads != 0)
    config.refuse("num_key_value_heads", concat(layer.heads, " heads are not a multiple of ", layer.kv_heads));
  const bool has_size = config.has("head_dim") || family.head_size > 0;
  if (!has_size && layer.width % layer.heads != 0)
    config.refuse("num_attention_heads",
                  concat(layer.heads, " heads do not divide hidden_size ", layer.width, ", and there is no head_dim"));
  layer.head_size =
      config.size("head_dim", family.head_size > 0 ? family.head_size : layer.width / layer.heads, kMostHubHeadSize);
  if (layer.head_size % 2 != 0)
    config.refuse("head_dim", concat("heads of ", layer.head_size, " numbers have no pairs to turn"));
}

template <std::size_t F>
ModelSpecPtr decoder_of_hub(HubConfig& config) {
  constexpr const DecoderFamily& family = kFamilies[F];
  DecoderOptions options;
  DecoderLayerOptions& layer = options.layer;
  options.vocabulary = config.size("vocab_size", kMostHubVocabulary);
  options.layers = static_cast<int>(config.size("num_hidden_layers", kMostHubLayers));
  options.tied = config.flag("tie_word_embeddings", false);
  layer.width = config.size("hidden_size", kMostHubWidth);
  layer.hidden = config.size("intermediate_size", kMostHubHidden);
  read_heads(config, family, layer);
  layer.epsilon = config.positive("rms_norm_eps", kHubEpsilon);
  layer.deviation = config.number("initializer_range", layer.deviation);
  if (!(layer.deviation >= 0 && layer.deviation <= 1e6))
    config.refuse("initializer_range", concat("expects a number from 0 to 1e6, got ", layer.deviation));
  layer.attention_dropout = config.probability("attention_dropout", 0);
  layer.gate = read_gate(config);
  layer.head_norms = family.head_norms;
  layer.qkv_bias = family.qkv_bias;
  if (family.attention_bias) layer.qkv_bias = layer.output_bias = config.flag("attention_bias", false);
  if (family.mlp_bias) layer.mlp_bias = config.flag("mlp_bias", false);
  read_windows(config, family, options);
  options.rotary = read_rotary(
      config, {.head_size = layer.head_size,
               .theta = kHubTheta,
               .max_positions = config.size("max_position_embeddings", family.positions, kMostHubPositions)});
  options.block = longest_text(options.rotary);
  return std::make_unique<DecoderSpec>(family, std::move(options));
}

// Two thirds of four times the width, as a gated part has three products where a plain one has two (Shazeer 2020).
std::int64_t usual_hidden(std::int64_t width) { return (8 * width / 3 + 63) / 64 * 64; }

template <std::size_t F>
ModelSpecPtr decoder_of_settings(const Settings& settings, std::int64_t vocabulary) {
  constexpr const DecoderFamily& family = kFamilies[F];
  const auto or_else = [&](std::string_view key, std::int64_t usual) {
    const std::int64_t given = settings.integer(key);
    return given == 0 ? usual : given;
  };
  DecoderOptions options;
  DecoderLayerOptions& layer = options.layer;
  options.vocabulary = vocabulary;
  options.block = settings.integer("model.block");
  options.layers = static_cast<int>(settings.integer("model.layers"));
  options.tied = settings.flag("model.tied");
  layer.width = settings.integer("model.width");
  layer.hidden = or_else("model.hidden", usual_hidden(layer.width));
  layer.heads = static_cast<int>(settings.integer("model.heads"));
  layer.kv_heads = static_cast<int>(or_else("model.kv_heads", layer.heads));
  layer.head_size = or_else("model.head_size", layer.width / layer.heads);
  layer.epsilon = family.epsilon;
  layer.qkv_bias = family.qkv_bias;
  layer.head_norms = family.head_norms;
  layer.dropout = settings.number("model.dropout");
  layer.attention_dropout = settings.number("model.attention_dropout");
  if (family.windows != Windows::none) layer.window = settings.integer("model.window");
  if (layer.window > 0) options.windowed.assign(static_cast<std::size_t>(options.layers), true);
  options.rotary = {
      .head_size = layer.head_size, .theta = settings.number("model.rope_theta"), .max_positions = options.block};
  return std::make_unique<DecoderSpec>(family, std::move(options));
}

std::vector<SettingsComplaint> complain_of_decoder(const Settings& settings) {
  std::vector<SettingsComplaint> complaints;
  const std::int64_t heads = settings.integer("model.heads"), kv_heads = settings.integer("model.kv_heads");
  if (kv_heads != 0 && heads % kv_heads != 0)
    complaints.push_back({{"model.kv_heads", "model.heads"},
                          concat(heads, " heads are not a multiple of ", kv_heads, " key/value heads")});
  const std::int64_t given = settings.integer("model.head_size"), width = settings.integer("model.width");
  if (given % 2 != 0)
    complaints.push_back({{"model.head_size"}, concat("heads of ", given, " numbers have no pairs to turn")});
  if (given == 0 && width % heads == 0 && width / heads % 2 != 0)
    complaints.push_back({{"model.heads", "model.width", "model.head_size"},
                          concat("heads of ", width / heads, " numbers have no pairs to turn; choose an even size")});
  return complaints;
}

std::vector<KeyRow> decoder_rows(const DecoderFamily& family) {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = "model.kv_heads",
       .type = integer,
       .standard = "0",
       .help = "Heads of keys and values, which neighbouring heads of queries share; 0: as many as model.heads.",
       .low = 0,
       .high = 1024,
       .known_as = "num_key_value_heads|n_kv_heads|num_kv_heads"},
      {.key = "model.head_size",
       .type = integer,
       .standard = "0",
       .help = "Numbers of a head, an even number; 0: model.width / model.heads.",
       .low = 0,
       .high = 4096,
       .known_as = "head_dim"},
      {.key = "model.hidden",
       .type = integer,
       .standard = "0",
       .help = "Channels inside the feed-forward parts; 0: 8/3 of the width, rounded up to a multiple of 64.",
       .low = 0,
       .high = 1048576,
       .known_as = "intermediate_size|ffn_dim|hidden_dim"},
      {.key = "model.rope_theta",
       .type = number,
       .standard = family.theta == kHubTheta ? "10000" : "1000000",
       .help = "Base of the wavelengths of rotary positions.",
       .low = 1,
       .known_as = "rope_base|rotary_base",
       .low_open = true},
      {.key = "model.tied",
       .type = flag,
       .standard = "false",
       .help = "The output layer is the token embedding.",
       .known_as = "tie_word_embeddings|tie_embeddings"}};
  if (family.windows != Windows::none)
    rows.push_back({.key = "model.window",
                    .type = integer,
                    .standard = family.window,
                    .help = "A token sees itself and so many less one before it; 0: all before it.",
                    .low = 0,
                    .high = 1048576,
                    .known_as = "sliding_window|attention_window"});
  return rows;
}

template <std::size_t F>
ModelEntry decoder_entry() {
  constexpr const DecoderFamily& family = kFamilies[F];
  ModelEntry entry;
  entry.name = family.name;
  entry.summary = family.summary;
  entry.rows = decoder_rows(family);
  entry.of_settings = decoder_of_settings<F>;
  entry.hub_type = family.name;
  entry.of_hub = decoder_of_hub<F>;
  entry.naming = {.base_prefix = "model.", .transposed = {}, .ignored = "rotary_emb.inv_freq"};
  entry.complain = complain_of_decoder;
  return entry;
}

}  // namespace

std::vector<ModelEntry> decoder_entries() {
  return {decoder_entry<0>(), decoder_entry<1>(), decoder_entry<2>(), decoder_entry<3>()};
}

}  // namespace keel
