// Adapters as PEFT's files have them.

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "keel/models/hub_tensors.h"
#include "keel/models/lora.h"
#include "keel/models/lora_names.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json.h"

namespace keel {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.";

// What keel computes only where it is absent, false or empty.
constexpr auto kMustBeOff = std::to_array<std::string_view>(
    {"use_dora", "use_qalora", "use_bdlora", "lora_bias", "rank_pattern", "alpha_pattern", "layers_to_transform",
     "layer_replication", "target_parameters", "trainable_token_indices", "exclude_modules", "alora_invocation_tokens",
     "arrow_config", "kasa_config", "velora_config", "monteclora_config"});
// Ways to begin that leave the base model's weights as they are.
constexpr auto kBeginnings = std::to_array<std::string_view>({"gaussian", "orthogonal", "eva", "lora_ga"});

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.boolean();
  if (value.is_array()) return value.items().empty();
  if (value.is_object()) return value.members().empty();
  return value.is_string() && value.string().empty();
}

std::vector<std::string> names_of(const Json* value, const std::string& place, std::string_view key) {
  if (value == nullptr || value->is_null()) return {};
  std::vector<std::string> names;
  if (value->is_string() && value->string() == "all-linear") return {"all"};
  KEEL_CHECK(value->is_array(), place, ": ", key,
             " is an expression; keel reads a list of names, as PEFT saves where names were given");
  for (const Json& each : value->items()) names.push_back(each.string());
  return names;
}

std::vector<NamedLinear> adapted(Module& model, const HubNaming& naming) {
  std::vector<NamedLinear> layers = named_linears(model, naming);
  std::erase_if(layers, [](const NamedLinear& layer) { return layer.adapter() == nullptr; });
  return layers;
}

// Last words of the names where these fit no other layer, else whole names: what PEFT finds by them is what has
// adapters.
std::vector<std::string> target_modules(Module& model, const HubNaming& naming) {
  const std::string_view prefix = missing_prefix(model, naming);
  std::set<std::string> words, names;
  for (const NamedLinear& layer : adapted(model, naming)) {
    words.insert(layer.name.substr(layer.name.rfind('.') + 1));
    names.insert(name_in_files(model, prefix, layer.name));
  }
  const std::vector<NamedLinear> layers = named_linears(model, naming);
  const bool are_enough = std::ranges::all_of(layers, [&](const NamedLinear& layer) {
    return layer.adapter() != nullptr || !words.contains(layer.name.substr(layer.name.rfind('.') + 1));
  });
  const std::set<std::string>& chosen = are_enough ? words : names;
  return {chosen.begin(), chosen.end()};
}

// Modules whose own parameters are trained, but for adapters.
std::vector<std::string> trained_wholes(Module& model, const HubNaming& naming) {
  const std::string_view prefix = missing_prefix(model, naming);
  std::vector<std::string> modules;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    const std::size_t dot = path.rfind('.');
    if (!parameter.trainable() || path.find(".lora_") != std::string::npos || dot == std::string::npos) return;
    std::string module = name_in_files(model, prefix, path.substr(0, dot));
    if (modules.empty() || modules.back() != module) modules.push_back(std::move(module));
  });
  return modules;
}

}  // namespace

std::string adapter_config(Module& model, const LoraOptions& options, const HubNaming& naming, const AdapterUse& use) {
  const auto text_or_null = [](std::string_view text) { return text.empty() ? Json() : Json(text); };
  const bool is_whole = options.alpha == std::floor(options.alpha) && std::abs(options.alpha) < 1e15;
  const std::vector<HubTensor> tensors = hub_tensors(model, naming);
  const bool turned =
      std::ranges::any_of(tensors, [](const HubTensor& each) { return each.transposed && each.low_rank.has_value(); });
  const std::vector<std::string> saved = trained_wholes(model, naming);
  const Json json = {{"base_model_name_or_path", text_or_null(use.base)},
                     {"bias", "none"},
                     {"fan_in_fan_out", turned},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", is_whole ? Json(static_cast<std::int64_t>(options.alpha)) : Json(options.alpha)},
                     {"lora_dropout", options.dropout},
                     {"modules_to_save", saved.empty() ? Json() : Json(saved)},
                     {"peft_type", "LORA"},
                     {"r", options.rank},
                     {"target_modules", Json(target_modules(model, naming))},
                     {"task_type", text_or_null(use.task_type)},
                     {"use_dora", false},
                     {"use_rslora", options.rank_stabilised}};
  return json.dump(2) + "\n";
}

LoraOptions read_adapter_config(std::string_view text, const std::string& place) {
  try {
    const Json json = Json::parse(text);
    KEEL_CHECK(json.is_object(), "it is no object");
    const Json* type = json.find("peft_type");
    KEEL_CHECK(type != nullptr && type->is_string() && type->string() == "LORA", "peft_type is not LORA");
    for (const std::string_view key : kMustBeOff)
      if (const Json* value = json.find(key))
        KEEL_CHECK(is_off(*value), key, " is ", value->dump(), ", which keel does not compute");
    if (const Json* bias = json.find("bias"))
      KEEL_CHECK(bias->is_null() || bias->string() == "none", "bias is ", bias->dump(), "; keel reads none alone");
    if (const Json* begin = json.find("init_lora_weights"); begin != nullptr && begin->is_string())
      KEEL_CHECK(std::ranges::find(kBeginnings, begin->string()) != kBeginnings.end(), "init_lora_weights is ",
                 begin->dump(), ", which changes the weights of the base model");
    LoraOptions options;
    options.place = place;
    options.rank = json.at("r").integer();
    options.alpha = json.at("lora_alpha").number();
    KEEL_CHECK(options.rank >= 1 && options.rank <= 65536, "r is ", options.rank);
    if (const Json* dropout = json.find("lora_dropout")) options.dropout = dropout->number();
    KEEL_CHECK(options.dropout >= 0 && options.dropout < 1, "lora_dropout is ", options.dropout);
    if (const Json* flag = json.find("use_rslora")) options.rank_stabilised = flag->boolean();
    options.targets = names_of(json.find("target_modules"), place, "target_modules");
    KEEL_CHECK(!options.targets.empty(), "target_modules names no layer");
    options.trained = names_of(json.find("modules_to_save"), place, "modules_to_save");
    options.may_lack_trained = true;  // PEFT names heads of all kinds of models there
    return options;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    throw Error(what.starts_with(place) ? std::string(what) : concat(place, ": ", what));
  }
}

HubNames adapter_names(Module& model, const HubNaming& naming) {
  HubNames names;
  names.config = kAdapterConfig;
  names.ignored = {".base_layer.weight"};  // PEFT saves weights of embeddings and heads that have adapters
  names.renamed = {{".lora_A.default.weight", ".lora_A.weight"}, {".lora_B.default.weight", ".lora_B.weight"}};
  const std::string_view prefix = missing_prefix(model, naming);
  for (const NamedLinear& layer : adapted(model, naming)) {
    const LowRankAdapter& adapter = *layer.adapter();
    const auto add = [&](std::string_view which, const Parameter& parameter) {
      names.tensors.push_back(
          {.name = concat(kPeftPrefix, name_in_files(model, prefix, layer.name), '.', which, ".weight"),
           .parameter = layer.parameter(which),
           .shape = parameter.shape()});
    };
    add("lora_A", adapter.a);
    add("lora_B", adapter.b);
  }
  std::set<std::string> trained;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (parameter.trainable()) trained.insert(path);
  });
  for (HubTensor tensor : hub_tensors(model, naming)) {
    if (!trained.contains(tensor.parameter)) continue;
    tensor.name = concat(kPeftPrefix, tensor.name);
    names.heads.push_back(tensor.name);  // files need not have what is trained as a whole
    for (std::string& other : tensor.also) other = concat(kPeftPrefix, other);
    tensor.low_rank.reset();
    names.tensors.push_back(std::move(tensor));
  }
  return names;
}

}  // namespace keel
