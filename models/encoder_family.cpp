#include "keel/models/encoder_family.h"

#include <algorithm>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// TensorFlow's names, in files of 2019.
constexpr std::string_view kRenamed = "LayerNorm.gamma=LayerNorm.weight|LayerNorm.beta=LayerNorm.bias";
constexpr EncoderFamily::LayerNames kBertLayer = {.at = "encoder.layer",
                                                  .qkv = "attention.self.qkv",
                                                  .parts = {"query", "key", "value"},
                                                  .attention_output = "attention.output.dense",
                                                  .attention_norm = "attention.output.LayerNorm",
                                                  .inner = "intermediate.dense",
                                                  .outer = "output.dense",
                                                  .norm = "output.LayerNorm"};
constexpr EncoderFamily::MaskedHead kRobertaMasked = {.dense = "lm_head.dense",
                                                      .norm = "lm_head.layer_norm",
                                                      .decoder = "lm_head.decoder.weight",
                                                      .bias = "lm_head.bias",
                                                      .always_gelu = true};
constexpr std::int64_t kBertWords = 30522, kBertBlock = 512;

EncoderFamily bert() {
  EncoderFamily family;
  family.name = family.hub_type = family.base = "bert";
  family.summary = "BERT: learned positions, types of tokens, layer norms behind each part, exact GELU";
  family.hub_class = "Bert";
  family.layer = kBertLayer;
  family.masked = {.dense = "cls.predictions.transform.dense",
                   .norm = "cls.predictions.transform.LayerNorm",
                   .decoder = "cls.predictions.decoder.weight",
                   .bias = "cls.predictions.bias"};
  family.sequence = {.dense = "bert.pooler.dense", .out = "classifier"};
  family.published = {{"bert-base", 12, 12, 768, kBertBlock, kBertWords},
                      {"bert-large", 24, 16, 1024, kBertBlock, kBertWords}};
  family.unused = {"directionality",       "pooler_fc_size",       "pooler_num_attention_heads",
                   "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"};
  family.naming = {.base_prefix = "bert.",
                   .ignored =
                       "embeddings.position_ids|embeddings.token_type_ids|cls.predictions.decoder.weight|"
                       "cls.predictions.decoder.bias",
                   .renamed = kRenamed,
                   .heads = "cls.|classifier.|pooler.|qa_outputs."};
  return family;
}

EncoderFamily roberta_like(std::string_view name, std::string_view hub_type, std::string_view hub_class) {
  EncoderFamily family;
  family.name = name;
  family.hub_type = hub_type;
  family.hub_class = hub_class;
  family.base = "roberta";
  family.layer = kBertLayer;
  family.masked = kRobertaMasked;
  family.sequence = {.dense = "classifier.dense", .out = "classifier.out_proj", .drops_input = true};
  family.padding_token = 1;
  family.positions_after_padding = true;
  family.epsilon = 1e-5;
  family.token_types = "1";
  family.unused = {"output_past"};
  family.naming = {.base_prefix = "roberta.",
                   .ignored =
                       "embeddings.position_ids|embeddings.token_type_ids|lm_head.decoder.weight|"
                       "lm_head.decoder.bias",
                   .renamed = kRenamed,
                   .heads = "lm_head.|classifier.|pooler.|qa_outputs."};
  return family;
}

EncoderFamily roberta() {
  EncoderFamily family = roberta_like("roberta", "roberta", "Roberta");
  family.summary = "RoBERTa: BERT whose positions begin behind the padding token's number, with heads of its own";
  family.published = {{"roberta-base", 12, 12, 768, kBertBlock, 50265},
                      {"roberta-large", 24, 16, 1024, kBertBlock, 50265}};
  return family;
}

EncoderFamily xlm_roberta() {
  EncoderFamily family = roberta_like("xlm_roberta", "xlm-roberta", "XLMRoberta");
  family.summary = "XLM-RoBERTa: RoBERTa with the tokens of a hundred languages";
  family.published = {{"xlm-roberta-base", 12, 12, 768, kBertBlock, 250002},
                      {"xlm-roberta-large", 24, 16, 1024, kBertBlock, 250002}};
  return family;
}

EncoderFamily distilbert() {
  EncoderFamily family;
  family.name = family.hub_type = family.base = "distilbert";
  family.summary = "DistilBERT: BERT without types of tokens, of half the layers";
  family.hub_class = "DistilBert";
  family.layer = {.at = "transformer.layer",
                  .qkv = "attention.qkv_lin",
                  .parts = {"q_lin", "k_lin", "v_lin"},
                  .attention_output = "attention.out_lin",
                  .attention_norm = "sa_layer_norm",
                  .inner = "ffn.lin1",
                  .outer = "ffn.lin2",
                  .norm = "output_layer_norm"};
  family.masked = {.dense = "vocab_transform",
                   .norm = "vocab_layer_norm",
                   .decoder = "vocab_projector.weight",
                   .bias = "vocab_projector.bias"};
  family.sequence = {.dense = "pre_classifier", .out = "classifier", .activation = ActivationKind::relu};
  family.keys = {.width = "dim",
                 .layers = "n_layers",
                 .heads = "n_heads",
                 .hidden = "hidden_dim",
                 .activation = "activation",
                 .dropout = "dropout",
                 .attention_dropout = "attention_dropout",
                 .head_dropout = "seq_classif_dropout",
                 .epsilon = {},
                 .token_types = {}};
  family.head_dropout = 0.2;
  family.drops_tokens_as_layers = true;
  family.token_types = "0";
  family.published = {{"distilbert-base", 6, 12, 768, kBertBlock, kBertWords}};
  family.unused = {"qa_dropout"};
  family.naming = {.base_prefix = "distilbert.",
                   .ignored = "embeddings.position_ids|vocab_projector.weight",
                   .renamed = kRenamed,
                   .heads = "vocab_|pre_classifier.|classifier.|qa_outputs."};
  return family;
}

EncoderFamily electra() {
  EncoderFamily family;
  family.name = family.hub_type = family.base = "electra";
  family.summary = "ELECTRA: BERT whose embeddings may be narrower than its layers; a head tells replaced tokens";
  family.hub_class = "Electra";
  family.layer = kBertLayer;
  family.masked = {.dense = "generator_predictions.dense",
                   .norm = "generator_predictions.LayerNorm",
                   .decoder = "generator_lm_head.weight",
                   .bias = "generator_lm_head.bias",
                   .always_gelu = true};
  family.sequence = {.dense = "classifier.dense",
                     .out = "classifier.out_proj",
                     .activation = ActivationKind::gelu,
                     .drops_input = true};
  family.replaced = {.dense = "discriminator_predictions.dense", .out = "discriminator_predictions.dense_prediction"};
  family.keys.embedding = "embedding_size";
  family.published = {{"electra-base", 12, 12, 768, kBertBlock, kBertWords},
                      {"electra-large", 24, 16, 1024, kBertBlock, kBertWords}};
  family.unused = {"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"};
  family.naming = {.base_prefix = "electra.",
                   .ignored = "embeddings.position_ids|embeddings.token_type_ids|generator_lm_head.weight",
                   .renamed = kRenamed,
                   .heads = "generator_|discriminator_predictions.|classifier.|qa_outputs."};
  return family;
}

}  // namespace

std::span<const EncoderFamily> encoder_families() {
  static const std::vector<EncoderFamily> families = {bert(), roberta(), xlm_roberta(), distilbert(), electra()};
  return families;
}

const EncoderFamily& encoder_family(std::string_view name) {
  std::string known;
  for (const EncoderFamily& family : encoder_families()) {
    if (family.name == name) return family;
    known += concat(known.empty() ? "" : ", ", family.name);
  }
  throw Error(concat("unknown encoder '", name, "'; known are ", known));
}

}  // namespace keel
