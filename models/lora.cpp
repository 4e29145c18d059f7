#include "keel/models/lora.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "keel/models/lora_names.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kLoraFrom = "model.lora_from", kLoraRank = "model.lora_rank", kNoAdapter = "none";
constexpr std::size_t kMostListed = 24;

// The name, or what follows a dot in it.
bool is_meant(std::string_view name, std::string_view target) {
  return name == target || (name.ends_with(target) && name[name.size() - target.size() - 1] == '.');
}

std::string listed(const std::set<std::string>& names) {
  std::string text;
  std::size_t count = 0;
  for (const std::string& name : names)
    if (count++ < kMostListed) text += concat(text.empty() ? "" : ", ", name);
  return count > kMostListed ? concat(text, " and ", count - kMostListed, " more") : text;
}

bool means_all(std::string_view target) { return target == "all" || target == "all-linear"; }

// What an Error about them begins with.
std::string names_in(const LoraOptions& options, std::string_view key, std::string_view key_of_peft) {
  return options.place.empty() ? std::string(key) : concat(options.place, ": ", key_of_peft);
}
std::string targets_in(const LoraOptions& options) { return names_in(options, "model.lora_targets", "target_modules"); }

std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool is_target(const NamedLinear& layer, std::string_view prefix, std::string_view target) {
  if (means_all(target)) return !layer.is_head;
  return is_meant(layer.name, target) || is_meant(concat(prefix, layer.name), target) || is_meant(layer.packed, target);
}

void add_adapters(Module& model, const LoraOptions& options, const HubNaming& naming) {
  const std::string_view prefix = missing_prefix(model, naming);
  std::vector<NamedLinear> layers = named_linears(model, naming);
  KEEL_CHECK(!layers.empty(), "LoRA: this model has no linear layers that could have adapters");
  std::vector<bool> chosen(layers.size());
  for (const std::string& target : options.targets) {
    bool fits = false;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!is_target(layers[i], prefix, target)) continue;
      fits = chosen[i] = true;
    }
    std::set<std::string> known;
    for (const NamedLinear& layer : layers) known.emplace(last_word(layer.name));
    KEEL_CHECK(fits, targets_in(options), ": no linear layer of the model is called '", printable(target, 128),
               "'; there are ", listed(known), ", names as long as ", layers.front().name, ", and all");
  }
  for (std::size_t i = 0; i < layers.size(); ++i)
    KEEL_CHECK(!chosen[i] || !layers[i].is_tied, targets_in(options), ": the weight of ", layers[i].name,
               " is that of another module too (the model's embedding is tied to it), and an adapter would part them; "
               "train it as a whole, as in model.lora_trains=[",
               last_word(layers[i].packed), "]");
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (chosen[i]) layers[i].linear->add_adapter(layers[i].part, options.rank, options.scale(), options.dropout);
}

// Paths of the modules that are trained as wholes.
std::set<std::string> trained_modules(Module& model, const LoraOptions& options, const HubNaming& naming) {
  std::set<std::string> all, known;
  std::vector<std::string> paths;
  for_each_module(model, [&](const std::string& path, Module&) {
    if (!path.empty()) paths.push_back(path);
  });
  for (const std::string& path : paths) known.emplace(last_word(path));
  const std::string_view prefix = missing_prefix(model, naming);
  for (const std::string& name : options.trained) {
    bool fits = false;
    for (const std::string& path : paths)
      if (is_meant(path, name) || is_meant(concat(prefix, path), name)) {
        all.insert(path);
        fits = true;
      }
    KEEL_CHECK(fits || options.may_lack_trained, names_in(options, "model.lora_trains", "modules_to_save"),
               ": no module of the model is called '", printable(name, 128),
               "', which is to be trained as a whole; there are ", listed(known));
  }
  return all;
}

void freeze_others(Module& model, const std::set<std::string>& trained) {
  const auto is_trained = [&](const std::string& path) {
    return std::ranges::any_of(trained, [&](const std::string& each) { return path.starts_with(each + '.'); });
  };
  std::set<const Parameter::State*> states;  // a parameter may have several paths
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (is_trained(path)) states.insert(parameter.state().get());
  });
  for_each_parameter(model, [&](const std::string&, Parameter& parameter) {
    parameter.set_trainable(states.contains(parameter.state().get()));
  });
}

}  // namespace

double LoraOptions::scale() const {
  return rank == 0 ? 0 : alpha / (rank_stabilised ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

std::vector<KeyRow> lora_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = kLoraRank,
       .type = integer,
       .standard = "0",
       .help =
           "LoRA (Hu et al. 2021): train products of so low a rank beside linear layers, whose weights stay as they "
           "are. 0: train all weights.",
       .low = 0,
       .high = 65536,
       .known_as = "lora_r"},
      {.key = "model.lora_alpha",
       .type = number,
       .standard = "16",
       .help = "The products count lora_alpha / lora_rank.",
       .low = 0,
       .high = 1e6,
       .known_as = "lora_scale"},
      {.key = "model.lora_rank_stabilised",
       .type = flag,
       .standard = "false",
       .help = "The products count lora_alpha / sqrt(lora_rank) (Kalajdzievski 2023).",
       .known_as = "use_rslora"},
      {.key = "model.lora_dropout",
       .type = number,
       .standard = "0",
       .help = "Probability that an input of the products is dropped in training.",
       .low = 0,
       .high = 1,
       .on_resume = ResumeRule::warns,
       .high_open = true},
      {.key = "model.lora_targets",
       .type = texts,
       .standard = "[all]",
       .help =
           "Linear layers that have such products: names, or their last words (q_proj, c_attn). all: all but those of "
           "heads, such as lm_head.",
       .known_as = "target_modules"},
      {.key = "model.lora_trains",
       .type = texts,
       .standard = "[]",
       .help = "Modules that are trained as wholes beside them, by names or their last words: classifier, lm_head.",
       .known_as = "modules_to_save"}};
  for (KeyRow& row : rows) {
    row.when_key = kLoraFrom;
    row.when_values = kNoAdapter;
  }
  rows.insert(rows.begin(), {.key = kLoraFrom,
                             .type = text,
                             .standard = kNoAdapter,
                             .help = "A folder of PEFT's form, with adapter_config.json and adapter_model.safetensors: "
                                     "begin with its adapters. none: the keys below describe them.",
                             .on_resume = ResumeRule::ignores});
  return rows;
}

std::vector<SettingsComplaint> complain_of_lora(const Settings& settings) {
  if (settings.text(kLoraFrom) != kNoAdapter || settings.integer(kLoraRank) != 0) return {};
  const Settings standard(lora_keys(), {});
  std::vector<SettingsComplaint> complaints;
  const auto complain = [&](std::string_view key, bool is_changed) {
    if (is_changed)
      complaints.push_back({{key, kLoraRank},
                            "describes adapters, and model.lora_rank is 0, which trains all weights; set "
                            "model.lora_rank, such as 8, or leave the key out"});
  };
  for (const std::string_view key : {"model.lora_alpha", "model.lora_dropout"})
    complain(key, settings.number(key) != standard.number(key));
  complain("model.lora_rank_stabilised", settings.flag("model.lora_rank_stabilised"));
  for (const std::string_view key : {"model.lora_targets", "model.lora_trains"})
    complain(key, settings.texts(key) != standard.texts(key));
  return complaints;
}

LoraOptions lora_options(const Settings& settings, const std::string& run) {
  const std::string& from = settings.text(kLoraFrom);
  if (from != kNoAdapter) {
    const std::string place = concat(run.empty() ? from : run, '/', kAdapterConfig);
    return read_adapter_config(read_text_file(place), place);
  }
  return {.rank = settings.integer(kLoraRank),
          .alpha = settings.number("model.lora_alpha"),
          .rank_stabilised = settings.flag("model.lora_rank_stabilised"),
          .dropout = settings.number("model.lora_dropout"),
          .targets = settings.texts("model.lora_targets"),
          .trained = settings.texts("model.lora_trains")};
}

LoraOptions with_heads(LoraOptions options, Module& model, const HubNaming& naming) {
  if (options.rank == 0) return options;
  const std::string_view prefix = missing_prefix(model, naming);
  for (const NamedLinear& layer : named_linears(model, naming)) {
    const auto is_named = [&](const std::string& target) {
      return !means_all(target) && is_target(layer, prefix, target);
    };
    const auto is_trained = [&](const std::string& name) { return is_meant(layer.packed, name); };
    if (!layer.is_head || std::ranges::any_of(options.targets, is_named)) continue;
    if (std::ranges::none_of(options.trained, is_trained)) options.trained.push_back(layer.packed);
  }
  return options;
}

void add_lora(Module& model, const LoraOptions& options, const HubNaming& naming) {
  if (options.rank == 0) return;
  KEEL_CHECK(options.rank > 0 && std::isfinite(options.alpha), "model.lora_rank: a rank of ", options.rank,
             " and an alpha of ", options.alpha, " are no numbers of an adapter");
  KEEL_CHECK(!options.targets.empty(), targets_in(options), ": no linear layer is named that is to have an adapter");
  freeze_others(model, trained_modules(model, options, naming));
  add_adapters(model, options, naming);
}

}  // namespace keel
