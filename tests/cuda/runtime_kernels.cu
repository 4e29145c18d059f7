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

// Each thread adds up what all have written to both kinds of shared memory.
__global__ void add_up_kernel(float* out) {
  KEEL_SHARED(float, fixed, 64);
  const auto dynamic = cuda::dynamic_span<float>();
  const unsigned t = threadIdx.x;
  fixed[t] = 0.5f;
  dynamic[t] = 0.5f;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 64; ++i) sum += fixed[i] + dynamic[i];
  out[t] = sum;
}

__global__ void offsets_kernel(float* out) {
  KEEL_SHARED(std::uint8_t, bytes, 2);
  KEEL_SHARED(std::uint16_t, words, 9);
  out[0] = static_cast<float>(reinterpret_cast<std::uintptr_t>(bytes.data()) % 16);
  out[1] = static_cast<float>(reinterpret_cast<std::uintptr_t>(words.data()) % 16);
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

void add_up_shared_memory(const Tensor& out, std::size_t dynamic_bytes) {
  cuda::launch("add_up_kernel", add_up_kernel, {1, 64, dynamic_bytes}, cuda::stream_of(out), out.data<float>());
}

void fetch_shared_offsets(const Tensor& out) {
  cuda::launch("offsets_kernel", offsets_kernel, {1, 1}, cuda::stream_of(out), out.data<float>());
}

}  // namespace keel::testing
