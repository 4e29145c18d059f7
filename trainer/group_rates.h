#pragma once
// By which factors the learning rates of a model's parameters differ.

#include <vector>

#include "keel/nn/module.h"
#include "keel/tasks/metric.h"
#include "keel/trainer/config.h"

namespace keel {

// A factor on the learning rate for each group of parameters that has its own: "group_1" of the first pattern of
// optimizer.groups, "others" of those that no pattern fits. Where layers of a group differ, each has a factor:
// "group_1_layer_3", "layer_3", counted from the input as LayerDepths counts (keel/optim/groups.h). Nothing where all
// parameters have one rate.
std::vector<NamedNumber> group_rates(const Config& config, Module& model);

}  // namespace keel
