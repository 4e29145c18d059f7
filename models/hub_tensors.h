#pragma once
// Which tensor of Hugging Face's files holds which part of which parameter.
//
// Parameters of keel's models are called as theirs, but for linear layers that are computed in one product: those name
// their parts (Linear::parts), and the file has a tensor for each.

#include <vector>

#include "keel/models/catalog.h"
#include "keel/nn/hub_tensor.h"
#include "keel/nn/module.h"

namespace keel {

// Of every parameter, tied ones once, in visiting order; but those of adapters, which are added to their layer's weight
// (HubTensor::low_rank). Names have the base model's prefix: where no parameter is
// called so, all get it.
std::vector<HubTensor> hub_tensors(Module& model, const HubNaming& naming);
// With what readers of files need besides.
HubNames hub_names(Module& model, const HubNaming& naming);

}  // namespace keel
