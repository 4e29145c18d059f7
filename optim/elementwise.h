#pragma once
// Optimizers that are made of an update rule.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "keel/kernels/update.h"
#include "keel/optim/optimizer.h"

namespace keel {

// An optimizer that treats each element for itself, but for norms that its rule may need: one of the rules of
// keel/kernels/update.h. Of matrices, Adafactor keeps mean squares of rows and columns alone: keel/kernels/factors.h.
struct ElementwiseOptions {
  UpdateSettings settings;
  // The settings of groups that have other ones: the first is variant 1. All keep the same states, and none has a
  // shared number.
  std::vector<UpdateSettings> variants = {};
  double weight_decay = 0;
  // Weights narrower than f32 have no masters, and are rounded up or down at random:
  // keel/kernels/stochastic_rounding.h.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;   // of that rounding
  bool takes_rows = false;  // OptimizerRequirements::rows; an Error where the rule does not
};
// `name` must outlive the optimizer. An Error where the settings make no sense.
std::unique_ptr<Optimizer> make_elementwise(std::string_view name, const ElementwiseOptions& options);

}  // namespace keel
