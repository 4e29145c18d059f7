#pragma once
// Which tensor of Hugging Face's files holds which part of which parameter: what a model says of itself, so that layers
// which know no model read and write such files.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/dims.h"

namespace keel {

// Files of a folder of PEFT's form.
inline constexpr const char *kAdapterWeights = "adapter_model.safetensors", *kAdapterConfig = "adapter_config.json";

// scale b a, which a merged file adds to a tensor.
struct HubLowRank {
  std::string a, b;  // parameters (rank, in) and (rows, rank)
  double scale = 1;
};

// One tensor of the file: rows [first_row, first_row + shape[0]) of a parameter, or all of it.
struct HubTensor {
  std::string name;       // in the file
  std::string parameter;  // in the model
  Dims shape;             // in the file
  std::int64_t first_row = 0;
  bool transposed = false;             // the file has (in, out) where the parameter has (out, in); then all of it
  std::vector<std::string> also = {};  // other names of the same numbers, which files may have beside it or instead
  std::optional<HubLowRank> low_rank = {};
};

// How files hold a model. All of its parameters are there, tied ones once; or adapters alone.
struct HubNames {
  std::vector<HubTensor> tensors = {};
  // What the files of a model without its head leave out in front of names, or have there in addition.
  std::string base_prefix = {};
  std::vector<std::string> ignored = {};  // endings of names: tensors that the model computes by itself
  // Endings of names in older files, and what they are called now.
  std::vector<std::pair<std::string, std::string>> renamed = {};
  // Beginnings of names, behind the prefix, of heads. Files may be without those of the model, which keep their initial
  // numbers then, and may have others.
  std::vector<std::string> heads = {};
  std::string config = "config.json";  // the file that describes the model, for messages
  std::string head_remedy = {};        // likewise, what helps where a head has other rows in the file; empty: nothing
};

}  // namespace keel
