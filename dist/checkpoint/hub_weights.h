#pragma once
// Weights in the form that Hugging Face's programs publish: model.safetensors, or several files with an index, whose
// tensors have other names than an engine's parameters, hold parts of them, or lie transposed (keel/nn/hub_tensor.h).

#include <string>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/hub_tensor.h"

namespace keel {

inline constexpr const char *kHubWeights = "model.safetensors", *kHubConfig = "config.json";

// Whether a folder has a config.json, and is neither a checkpoint's nor a run's.
bool is_hub_folder(const std::string& folder);

// The tensors of such a folder, by the names that they have there. A folder without weights is an Error that says what
// was looked for; one that has them as pytorch_model.bin alone says how to convert them.
Manifest describe_hub_weights(const std::string& folder);

struct HubMatch {
  std::vector<HubTensor> tensors;                          // by the names of the file; without those that begin anew
  std::vector<std::pair<std::string, std::string>> twice;  // names of tensors that must be the same numbers
  std::vector<std::string> notes;                          // what begins anew, and what is left aside
};
// Which of the files' tensors are which parts of the model. One Error lists all that are missing, that the model has no
// place for, that are of another shape, and that are no floating-point numbers.
HubMatch match_hub_tensors(const Manifest& manifest, const HubNames& names, const std::string& folder);

// Gives the engine's weights, which may be frozen, the numbers of the files; returns HubMatch::notes. Each rank reads
// what holds its own elements, and short gaps between them. An Error of match_hub_tensors(), and of tensors that are
// there twice with different numbers, is an AgreedError and changes nothing. Every rank calls it, with the same
// manifest. Memory beside the engine's: a few extents.
std::vector<std::string> load_hub_weights(const std::string& folder, const Manifest& manifest, const HubNames& names,
                                          Sharded& engine, Communicator& ranks);

}  // namespace keel
