#pragma once
// The update by one rule on a device. Which .cu file compiles it for which rules: update_adam.cu, update_others.cu, and
// update_norms.cu for those that need norms.

#include "keel/kernels/update.h"

namespace keel::cuda {

template <class Settings>
void update_by(const Settings& settings, const UpdateArgs& args);
template <class Settings>
void measure_by(const Settings& settings, const UpdateArgs& args, const Tensor& squares);

}  // namespace keel::cuda
