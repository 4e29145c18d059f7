#include "race_demo.h"

#include "keel/kernels/cuda/device.h"
#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/tensor.h"

namespace keel::cli {
namespace {

constexpr int kThreads = 64;

// Each round adds the upper half of the numbers that are left to the lower half. The next round reads what other
// threads wrote in this one: that is what the barrier is for.
template <bool kWithBarrier>
__global__ void sum_kernel(float* out) {
  KEEL_SHARED(float, numbers, kThreads);
  const int t = static_cast<int>(threadIdx.x);
  numbers[t] = static_cast<float>(t + 1);
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) {
      const float other = numbers[t + half];
      numbers[t] += other;
    }
    if (kWithBarrier) __syncthreads();
  }
  if (t == 0) *out = numbers[0];
}

}  // namespace

float sum_of_block(bool with_barrier, [[maybe_unused]] ThreadOrder order, [[maybe_unused]] bool look_for_races) {
  ContextOptions options;
  options.device = {DeviceType::emulated, 0};
  const Context device = Context::create(options);
#ifdef KEEL_EMULATED
  const emulation::GridOptions before = emulation::grid_options();
  emulation::grid_options().threads =
      order == ThreadOrder::first_to_last ? emulation::Order::forward : emulation::Order::reverse;
  emulation::grid_options().check_races = look_for_races;
#endif
  const Tensor sum = empty(device, {1});
  const char* name = with_barrier ? "sum_with_barrier" : "sum_without_barrier";
  cuda::launch(name, with_barrier ? sum_kernel<true> : sum_kernel<false>, {1, kThreads},
               static_cast<cudaStream_t>(device.stream().native()), sum.data<float>());
#ifdef KEEL_EMULATED
  emulation::grid_options() = before;
#endif
  return static_cast<float>(sum.item());
}

int threads_of_a_warp() { return cuda::kWarp; }

}  // namespace keel::cli
