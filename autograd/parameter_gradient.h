#pragma once
// Where the gradient of a parameter goes that a kernel writes by itself.

#include "keel/autograd/record.h"

namespace keel {

// For input `input` of a node, of the value `parameter`: the buffer in which its gradient accumulates, or a new tensor.
// Leaves both arguments as they are where no gradient is needed.
inline void place_parameter_gradient(const Need& need, std::size_t input, const Tensor& parameter, Tensor& target,
                                     bool& add) {
  if (!need[input]) return;
  if (const auto destination = need.destination(input)) {
    target = destination->into;
    add = destination->add;
  } else {
    target = empty(parameter.context(), parameter.shape(), parameter.dtype());
  }
}

}  // namespace keel
