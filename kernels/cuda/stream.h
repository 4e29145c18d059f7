#pragma once
// Where the CUDA backend's work goes; for host code too.

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/tensor.h"

namespace keel::cuda {

// The stream for work on x, with x's device made current.
inline cudaStream_t stream_of(const Tensor& x) {
  x.context().api().make_current();
  return static_cast<cudaStream_t>(x.context().stream().native());
}

// Whether this thread's work for the context is being recorded as a graph. It does not happen then, so that nothing can
// be timed, and what a library does to prepare itself may not be allowed.
inline bool is_recording(const Context& context) {
  context.api().make_current();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(context.stream().native()), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace keel::cuda
