#pragma once
// Which tensor of Hugging Face's files holds which part of which parameter.
//
// Parameters of keel's models are called as theirs, but for linear layers that are computed in one product: those name
// their parts (Linear::parts), and the file has a tensor for each.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/nn/module.h"

namespace keel {

// One tensor of the file: rows [first_row, first_row + shape[0]) of a parameter, or all of it.
struct HubTensor {
  std::string name;       // in the file
  std::string parameter;  // in the model
  Dims shape;             // in the file
  std::int64_t first_row = 0;
  bool transposed = false;  // the file has (in, out) where the parameter has (out, in); then all of it
};

// Of every parameter, tied ones once, in visiting order.
std::vector<HubTensor> hub_tensors(Module& model, const HubNaming& naming);

}  // namespace keel
