#include "keel/models/hub_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

// Keys of every model's file that no forward pass computes with.
constexpr std::array kNotComputed = std::to_array<std::string_view>({"_attn_implementation",
                                                                     "_name_or_path",
                                                                     "architectures",
                                                                     "auto_map",
                                                                     "bad_words_ids",
                                                                     "begin_suppress_tokens",
                                                                     "bos_token_id",
                                                                     "cls_token_id",
                                                                     "decoder_start_token_id",
                                                                     "diversity_penalty",
                                                                     "do_sample",
                                                                     "dtype",
                                                                     "early_stopping",
                                                                     "eos_token_id",
                                                                     "exponential_decay_length_penalty",
                                                                     "finetuning_task",
                                                                     "forced_bos_token_id",
                                                                     "forced_eos_token_id",
                                                                     "gradient_checkpointing",
                                                                     "id2label",
                                                                     "initializer_factor",
                                                                     "initializer_range",
                                                                     "is_llama_config",
                                                                     "keys_to_ignore_at_inference",
                                                                     "label2id",
                                                                     "length_penalty",
                                                                     "mask_token_id",
                                                                     "max_length",
                                                                     "min_length",
                                                                     "model_type",
                                                                     "neftune_noise_alpha",
                                                                     "no_repeat_ngram_size",
                                                                     "num_beam_groups",
                                                                     "num_beams",
                                                                     "num_labels",
                                                                     "num_return_sequences",
                                                                     "output_attentions",
                                                                     "output_hidden_states",
                                                                     "output_scores",
                                                                     "pad_token_id",
                                                                     "prefix",
                                                                     "pretraining_tp",
                                                                     "problem_type",
                                                                     "remove_invalid_values",
                                                                     "repetition_penalty",
                                                                     "return_dict",
                                                                     "return_dict_in_generate",
                                                                     "sep_token_id",
                                                                     "suppress_tokens",
                                                                     "task_specific_params",
                                                                     "temperature",
                                                                     "tf_legacy_loss",
                                                                     "tokenizer_class",
                                                                     "top_k",
                                                                     "top_p",
                                                                     "torch_dtype",
                                                                     "torchscript",
                                                                     "transformers.js_config",
                                                                     "transformers_version",
                                                                     "typical_p",
                                                                     "unk_token_id",
                                                                     "unsloth_version",
                                                                     "use_bfloat16",
                                                                     "use_cache"});
static_assert(std::ranges::is_sorted(kNotComputed));

// Keys that change what is computed, but for the one value that files have where they do not.
const std::vector<Json::Member>& inert_keys() {
  static const std::vector<Json::Member> keys = {{"add_cross_attention", false},   {"attention_bias", false},
                                                 {"chunk_size_feed_forward", 0},   {"is_decoder", false},
                                                 {"is_encoder_decoder", false},    {"mlp_bias", false},
                                                 {"pruned_heads", Json::object()}, {"rope_interleaved", false},
                                                 {"tie_encoder_decoder", false},   {"use_mrope", false}};
  return keys;
}

}  // namespace

HubConfig::HubConfig(std::string_view text, std::string place) : place_(std::move(place)) {
  try {
    whole_ = Json::parse(text);
  } catch (const Error& error) { throw Error(concat(place_, ": "), error); }
  KEEL_CHECK(whole_.is_object(), place_, ": the configuration of a model is an object, {\"model_type\": ...}");
  model_type_ = this->text("model_type", "");
  KEEL_CHECK(!model_type_.empty(), place_, ": there is no model_type, which says what the model is");
}

const Json* HubConfig::find(std::string_view key) {
  read_.emplace(key);
  const Json* const found = whole_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool HubConfig::has(std::string_view key) const {
  const Json* const found = whole_.find(key);
  return found != nullptr && !found->is_null();
}

bool HubConfig::is_null(std::string_view key) const {
  const Json* const found = whole_.find(key);
  return found != nullptr && found->is_null();
}

void HubConfig::refuse(std::string_view key, std::string_view why) const {
  throw Error(concat(place_, ": ", key, ": ", why));
}

std::int64_t HubConfig::integer(std::string_view key) {
  const Json* const found = find(key);
  if (found == nullptr) refuse(key, "is missing, and is a whole number");
  if (!found->is_integer()) refuse(key, concat("expects a whole number, got ", printable(found->dump(), 64)));
  return found->integer();
}
std::int64_t HubConfig::integer(std::string_view key, std::int64_t standard) {
  return find(key) == nullptr ? standard : integer(key);
}
double HubConfig::number(std::string_view key, double standard) {
  const Json* const found = find(key);
  if (found == nullptr) return standard;
  if (!found->is_number()) refuse(key, concat("expects a number, got ", printable(found->dump(), 64)));
  return found->number();
}
bool HubConfig::flag(std::string_view key, bool standard) {
  const Json* const found = find(key);
  if (found == nullptr) return standard;
  if (!found->is_boolean()) refuse(key, concat("expects true or false, got ", printable(found->dump(), 64)));
  return found->boolean();
}
std::string HubConfig::text(std::string_view key, std::string_view standard) {
  const Json* const found = find(key);
  if (found == nullptr) return std::string(standard);
  if (!found->is_string()) refuse(key, concat("expects a text, got ", printable(found->dump(), 64)));
  return found->string();
}
std::int64_t HubConfig::size(std::string_view key, std::int64_t most) {
  const std::int64_t found = integer(key);
  if (found < 1 || found > most) refuse(key, concat("expects a whole number from 1 to ", most, ", got ", found));
  return found;
}
std::int64_t HubConfig::size(std::string_view key, std::int64_t standard, std::int64_t most) {
  return find(key) == nullptr ? standard : size(key, most);
}
double HubConfig::probability(std::string_view key, double standard) {
  const double found = number(key, standard);
  if (!(found >= 0 && found < 1)) refuse(key, concat("expects a probability in [0, 1), got ", found));
  return found;
}
double HubConfig::positive(std::string_view key, double standard) {
  const double found = number(key, standard);
  if (const auto value = static_cast<float>(found); !(value > 0 && std::isfinite(value)))
    refuse(key, concat("expects a finite number above 0, got ", found));
  return found;
}
Json HubConfig::value(std::string_view key) {
  const Json* const found = find(key);
  return found == nullptr ? Json() : *found;
}

void HubConfig::expect(std::string_view key, const Json& only) {
  const Json* const found = find(key);
  const auto is_same = [&] {  // 0 is 0.0
    return found->is_number() && only.is_number() ? found->number() == only.number() : found->dump() == only.dump();
  };
  if (found != nullptr && !is_same())
    refuse(key, concat("is ", printable(found->dump(), 64), ", and keel's ", model_type_, " computes with ",
                       only.dump(), " alone"));
}

void HubConfig::ignore(std::span<const std::string_view> keys) { read_.insert(keys.begin(), keys.end()); }

void HubConfig::check_all_read(std::span<const std::string> allowed) {
  const auto is_allowed = [&](std::string_view key) { return std::ranges::find(allowed, key) != allowed.end(); };
  for (const auto& [key, only] : inert_keys())
    if (!read_.contains(key) && !is_allowed(key)) expect(key, only);
  std::string unknown;
  for (const auto& [key, value] : whole_.members())
    if (!read_.contains(key) && !value.is_null() && !std::ranges::binary_search(kNotComputed, std::string_view(key)) &&
        !is_allowed(key))
      unknown += concat(unknown.empty() ? "" : ", ", printable(key, 64), " (", printable(value.dump(), 40), ")");
  KEEL_CHECK(unknown.empty(), place_, ": keel's ", model_type_, " does not know ", unknown,
             "; where that changes nothing that is computed, name it in model.ignored_keys");
}

}  // namespace keel
