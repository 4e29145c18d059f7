// GPT-2's entry of the catalog: published sizes, keys, config.json, what a size costs.

#include "keel/models/gpt_spec.h"

#include <algorithm>
#include <array>

#include "keel/models/gpt.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Radford et al. 2019, table 2.
constexpr std::array<ModelEntry::Published, 4> kGptSizes = {
    {{"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}}};

class GptSpec : public ModelSpec {
 public:
  GptSpec(const ModelEntry& entry, const GptOptions& options) : ModelSpec(entry), options_(options) {}

  std::int64_t vocabulary() const override { return options_.vocabulary; }
  std::int64_t block() const override { return options_.block; }
  double dropout() const override { return std::max(options_.dropout, options_.attention_dropout); }
  double training_flops_of_token(std::int64_t parameters) const override {
    return keel::training_flops_of_token(options_, parameters);
  }
  std::unique_ptr<CausalModel> make_decoder() const override { return std::make_unique<Gpt>(options_); }

  std::string why_no_hub_config() const override {
    return options_.bias ? "" : "model.bias is false, and transformers' GPT-2 has biases";
  }

  Json hub_config(const HeadOptions& /*head*/) const override {
    if (const std::string why = why_no_hub_config(); !why.empty()) throw Error(why, ErrorKind::unsupported);
    return {{"architectures", Json::array({"GPT2LMHeadModel"})},
            {"model_type", "gpt2"},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", options_.attention_dropout},
            {"embd_pdrop", options_.dropout},
            {"layer_norm_epsilon", 1e-5},
            {"n_ctx", options_.block},
            {"n_embd", options_.width},
            {"n_head", std::int64_t{options_.heads}},
            {"n_inner", nullptr},
            {"n_layer", std::int64_t{options_.layers}},
            {"n_positions", options_.block},
            {"reorder_and_upcast_attn", false},
            {"resid_pdrop", options_.dropout},
            {"scale_attn_by_inverse_layer_idx", false},
            {"scale_attn_weights", true},
            {"tie_word_embeddings", true},
            {"vocab_size", options_.vocabulary}};
  }

 private:
  GptOptions options_;
};

ModelSpecPtr gpt_of_settings(const Settings& settings, std::int64_t vocabulary) {
  GptOptions options;
  options.layers = static_cast<int>(settings.integer("model.layers"));
  options.heads = static_cast<int>(settings.integer("model.heads"));
  options.width = settings.integer("model.width");
  options.vocabulary = vocabulary;
  options.block = settings.integer("model.block");
  options.dropout = settings.number("model.dropout");
  options.attention_dropout = settings.number("model.attention_dropout");
  options.bias = settings.flag("model.bias");
  return std::make_unique<GptSpec>(*find_model("gpt"), options);
}

ModelSpecPtr gpt_of_hub(HubConfig& config) {
  GptOptions options;
  options.layers = static_cast<int>(config.size("n_layer", kMostHubLayers));
  options.heads = static_cast<int>(config.size("n_head", kMostHubHeads));
  options.width = config.size("n_embd", kMostHubWidth);
  options.vocabulary = config.size("vocab_size", kMostHubVocabulary);
  options.block = config.size("n_positions", kMostHubPositions);
  options.dropout = config.probability("resid_pdrop", 0.1);
  options.attention_dropout = config.probability("attn_pdrop", 0.1);
  if (options.width % options.heads != 0)
    config.refuse("n_head", concat(options.heads, " heads do not divide n_embd ", options.width));
  config.expect("activation_function", "gelu_new");
  config.expect("embd_pdrop", options.dropout);
  config.expect("layer_norm_epsilon", 1e-5);
  config.expect("n_inner", 4 * options.width);
  config.expect("scale_attn_weights", true);
  config.expect("scale_attn_by_inverse_layer_idx", false);
  config.expect("reorder_and_upcast_attn", false);
  config.expect("tie_word_embeddings", true);
  constexpr auto kUnused =
      std::to_array<std::string_view>({"n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                                       "summary_type", "summary_use_proj"});
  config.ignore(kUnused);
  return std::make_unique<GptSpec>(*find_model("gpt"), options);
}

}  // namespace

ModelEntry gpt_entry() {
  ModelEntry entry;
  entry.name = "gpt";
  entry.summary = "GPT-2: learned positions, layer norms before each part, an output layer that is the token embedding";
  entry.rows = {{.key = "model.bias",
                 .type = KeyType::flag,
                 .standard = "true",
                 .help = "Biases in linear layers and layer norms."}};
  entry.published.assign(kGptSizes.begin(), kGptSizes.end());
  entry.of_settings = gpt_of_settings;
  entry.hub_type = "gpt2";
  entry.of_hub = gpt_of_hub;
  entry.naming = {.base_prefix = "transformer.",
                  .transposed = "attn.c_attn.weight|attn.c_proj.weight|mlp.c_fc.weight|mlp.c_proj.weight",
                  .ignored = "attn.bias|attn.masked_bias"};
  return entry;
}

double training_flops_of_token(const GptOptions& options, std::int64_t parameters) {
  const double attention = options.layers * static_cast<double>(options.width) * static_cast<double>(options.block);
  return 6 * (static_cast<double>(parameters) + attention);
}

GptOptions gpt_by_name(std::string_view name) {
  std::string known;
  for (const ModelEntry::Published& size : kGptSizes) {
    if (size.name == name) {
      GptOptions options;
      options.layers = static_cast<int>(size.layers);
      options.heads = static_cast<int>(size.heads);
      options.width = size.width;
      return options;
    }
    known += concat(known.empty() ? "" : ", ", size.name);
  }
  throw Error(concat("unknown model '", name, "'; known are ", known));
}

}  // namespace keel
