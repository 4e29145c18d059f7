#pragma once
// Names of linear layers as Hugging Face's models have them: parts of packed layers are layers of their own.

#include <string>
#include <string_view>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/nn/layers.h"

namespace keel {

// "layers.0.self_attn.qkv_proj" with the part q_proj: "layers.0.self_attn.q_proj".
std::string sibling_name(std::string_view path, std::string_view part);

struct NamedLinear {
  std::string name;    // "layers.0.self_attn.q_proj"
  std::string packed;  // path of the layer in the model: "layers.0.self_attn.qkv_proj"
  std::string part;    // "q_proj"; empty: it is one layer
  Linear* linear;
  bool is_head;
  bool is_tied;  // its weight is that of another module

  // Null: it has none.
  const LowRankAdapter* adapter() const;
  // "layers.0.self_attn.qkv_proj.q_proj.lora_A.weight"
  std::string parameter(std::string_view which) const;
};
// In visiting order.
std::vector<NamedLinear> named_linears(Module& model, const HubNaming& naming);

// What names of the model lack in front, as files have them: naming.base_prefix, or nothing where some have it.
std::string_view missing_prefix(Module& model, const HubNaming& naming);
// A module's name as files have it: with that in front, but for a decoder's head, which has it nowhere.
std::string name_in_files(Module& model, std::string_view prefix, std::string_view path);

}  // namespace keel
