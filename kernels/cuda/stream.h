#pragma once
// Where the CUDA backend's work for a tensor goes; for host code too.

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/tensor.h"

namespace keel::cuda {

// The stream for work on x, with x's device made current.
inline cudaStream_t stream_of(const Tensor& x) {
  x.context().api().make_current();
  return static_cast<cudaStream_t>(x.context().stream().native());
}

}  // namespace keel::cuda
