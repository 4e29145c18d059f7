#include "tests/cuda/runtime_kernels.h"

#include "keel/kernels/cuda/device.h"

namespace keel::testing {
namespace {

__global__ void fill_kernel(float* out, std::int64_t count, float value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value;
}

__global__ void overrun_kernel(float* out) {
  KEEL_SHARED(float, shared, 4);
  shared[threadIdx.x] = 1;
  if (threadIdx.x == 0) out[0] = 1;
}

}  // namespace

bool is_recording(const Context& context) { return cuda::is_recording(context); }

void fill_by_kernel(const Tensor& out, float value, unsigned threads) {
  cuda::launch("fill_kernel", fill_kernel, {static_cast<unsigned>(cuda::ceil_div(out.numel(), threads)), threads},
               cuda::stream_of(out), out.data<float>(), out.numel(), value);
}

void overrun_shared_memory(const Tensor& out) {
  cuda::launch("overrun_kernel", overrun_kernel, {1, 5}, cuda::stream_of(out), out.data<float>());
}

}  // namespace keel::testing
