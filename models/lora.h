#pragma once
// LoRA: adapters of low rank on linear layers, whose weights stay as they are (Hu et al. 2021), by keys of a
// configuration or as a folder of PEFT's form has them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/nn/hub_tensor.h"
#include "keel/nn/module.h"

namespace keel {

struct LoraOptions {
  std::int64_t rank = 0;         // 0: no adapters, and everything is trained
  double alpha = 16;             // products count alpha / rank
  bool rank_stabilised = false;  // alpha / sqrt(rank) (Kalajdzievski 2023)
  double dropout = 0;            // of what adapters read
  // Linear layers that get an adapter, each name as a whole or what follows a dot in it: "q_proj", "h.0.attn.c_attn". A
  // layer of several in one product means all of its parts. "all", or "all-linear" as PEFT has it: all but those of
  // heads.
  std::vector<std::string> targets = {"all"};
  std::vector<std::string> trained = {};  // modules that are trained as wholes, by names likewise
  bool may_lack_trained = false;          // the model need not have all of these
  std::string place = {};                 // of the adapter_config.json that says all this; empty: keys do

  double scale() const;
};

// Keys of the section `model`, which apply to every model.
std::vector<KeyRow> lora_keys();
// Of keys that describe adapters where there are none.
std::vector<SettingsComplaint> complain_of_lora(const Settings& settings);
// What the keys say; of model.lora_from, its adapter_config.json. `run`: folder of a run whose model is asked, and
// which has that file then.
LoraOptions lora_options(const Settings& settings, const std::string& run = {});

// With the model's heads among what is trained, but for layers of theirs that are named as targets: a head that begins
// at random cannot stay as it is. Nothing where the rank is 0.
LoraOptions with_heads(LoraOptions options, Module& model, const HubNaming& naming);
// Gives the model adapters, and freezes all but these and options.trained. Does nothing where the rank is 0. Before the
// model has memory. A name that fits nothing is an Error that lists what there is; so is a target whose weight is that
// of another module, as of a tied head. A parameter that several modules share is trained where one of them is.
void add_lora(Module& model, const LoraOptions& options, const HubNaming& naming);

// The adapter_config.json of a model with adapters, and back. `base`: the model's name or folder, empty: unknown. What
// keel computes otherwise is an Error that names the key.
struct AdapterUse {
  std::string base = {};
  std::string_view task_type = {};  // "CAUSAL_LM"; empty: none
};
std::string adapter_config(Module& model, const LoraOptions& options, const HubNaming& naming, const AdapterUse& use);
LoraOptions read_adapter_config(std::string_view text, const std::string& place);

// How PEFT's files call adapters, and what is trained as a whole beside them.
HubNames adapter_names(Module& model, const HubNaming& naming);

}  // namespace keel
