// What an optimizer does to numbers on a device: the choice of the update, sums of squares, the step's decision.

#include <algorithm>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/update.h"
#include "keel/kernels/step_rule.h"
#include "keel/kernels/update_rule.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

StepState* state_of(const Tensor& step) { return reinterpret_cast<StepState*>(step.data<std::uint8_t>()); }

void update(const UpdateArgs& args) {
  visit_rule([&](const auto& settings) { update_by(settings, args); }, args.settings);
}

template <class Settings>
__global__ void advance_shared_kernel(Settings settings, const StepState* state, double* shared) {
  if (state->taken != 0) *shared = Settings::template Rule<double>::advance(settings, *state, *shared);
}

void advance_shared(const AdvanceArgs& args) {
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasShared<Settings>)
          launch("advance_shared", advance_shared_kernel<Settings>, {1, 1}, stream_of(args.step), settings,
                 state_of(args.step), args.shared.data<double>());
      },
      args.settings);
}

void measure_norms(const UpdateArgs& args, const Tensor& squares) {
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasNorms<Settings>) measure_by(settings, args, squares);
      },
      args.settings);
}

constexpr std::int64_t kSquaresChunk = 16384;  // elements of a block
constexpr int kFinishThreads = 1024;

// partial[b] = the sum of squares of chunk b. Which thread adds what depends on the position alone.
template <class T>
__global__ void square_sums_kernel(const T* x, std::int64_t count, bool aligned, double* partial, StepState* state,
                                   std::int64_t first) {
  constexpr int kSize = Pack<T>::kSize;
  KEEL_SHARED(double, scratch, kWarp);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSquaresChunk;
  const std::int64_t end = std::min(count, begin + kSquaresChunk);
  const auto add_to = [](double sum, T element) {
    const auto wide = static_cast<double>(widen(element));
    return math::fma(wide, wide, sum);  // the product is exact in fp64
  };
  double sum = 0;
  for (std::int64_t at = begin + threadIdx.x * kSize; at < end; at += kThreads * kSize) {
    if (aligned && at + kSize <= end) {
      const Pack<T> pack = load_pack(x + at);
#pragma unroll
      for (int i = 0; i < kSize; ++i) sum = add_to(sum, pack.values[i]);
    } else {
      for (std::int64_t i = at; i < std::min(end, at + kSize); ++i) sum = add_to(sum, x[i]);
    }
  }
  // The squares of finite elements, of at most 2^256 each, have a finite sum.
  if (sum - sum != 0)
    for (std::int64_t at = begin + threadIdx.x * kSize; at < end; at += kThreads * kSize)
      for (std::int64_t i = at; i < std::min(end, at + kSize); ++i)
        if (const float element = widen(x[i]); element - element != 0)
          atomicMin(reinterpret_cast<long long*>(&state->partial.bad), static_cast<long long>(first + i));
  sum = reduce_block(sum, 0.0, Sum{}, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_to_squares_kernel(const double* partial, std::int64_t count, StepState* state) {
  KEEL_SHARED(double, scratch, kWarp);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum += partial[i];
  sum = reduce_block(sum, 0.0, Sum{}, scratch);
  if (threadIdx.x == 0) state->partial.squares += sum;
}

void add_squares(const Tensor& x, const Tensor& step, std::int64_t first) {
  if (x.numel() == 0) return;
  const std::int64_t blocks = ceil_div(x.numel(), kSquaresChunk);
  const Tensor partial = empty(x.context(), {blocks}, DType::f64, Purpose::workspace);
  visit_kernel_type("add_squares", x.dtype(), x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("add_squares", square_sums_kernel<T>, {static_cast<unsigned>(blocks), kThreads}, stream_of(x), x.data<T>(),
           x.numel(), packs_fit(x.data<T>(), Pack<T>::kSize), partial.data<double>(), state_of(step), first);
  });
  launch("add_squares", add_to_squares_kernel, {1, kFinishThreads}, stream_of(x), partial.data<double>(), blocks,
         state_of(step));
}

constexpr std::int64_t kClipChunk = 16 * kThreads;  // elements of a block

template <class T>
__global__ void clip_values_kernel(T* x, std::int64_t count, const StepState* state, double limit) {
  const auto largest = largest_element<float>(*state, limit);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kClipChunk;
  const std::int64_t end = std::min(count, begin + kClipChunk);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    if (const float element = widen(x[i]); is_clipped(element, largest))
      x[i] = static_cast<T>(element > 0 ? largest : -largest);
}

void clip_values(const Tensor& x, const Tensor& step, double limit) {
  if (x.numel() == 0) return;
  visit_kernel_type("clip_values", x.dtype(), x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("clip_values", clip_values_kernel<T>, {static_cast<unsigned>(ceil_div(x.numel(), kClipChunk)), kThreads},
           stream_of(x), x.data<T>(), x.numel(), state_of(step), limit);
  });
}

__global__ void add_tokens_kernel(StepState* state, double tokens) { state->partial.tokens += tokens; }

__global__ void add_noted_kernel(const StepState* noted, StepState* state, std::int64_t first) {
  StepPartial& partial = state->partial;
  partial.squares += noted->partial.squares;
  if (noted->partial.bad != StepPartial::kNothingBad) partial.bad = std::min(partial.bad, first + noted->partial.bad);
}

void add_noted(const Tensor& noted, const Tensor& step, std::int64_t first) {
  launch("add_noted", add_noted_kernel, {1, 1}, stream_of(step), state_of(noted), state_of(step), first);
}

void add_tokens(const Tensor& step, double tokens) {
  launch("add_tokens", add_tokens_kernel, {1, 1}, stream_of(step), state_of(step), tokens);
}

__global__ void decide_step_kernel(StepState* state, StepRule rule) { rule(*state); }

void decide_step(const StepArgs& args) {
  launch("decide_step", decide_step_kernel, {1, 1}, stream_of(args.state), state_of(args.state), StepRule(args));
}

}  // namespace

void add_update(KernelTable& table) {
  table.update = update;
  table.advance_shared = advance_shared;
  table.measure_norms = measure_norms;
  table.add_squares = add_squares;
  table.clip_values = clip_values;
  table.add_noted = add_noted;
  table.add_tokens = add_tokens;
  table.decide_step = decide_step;
}

}  // namespace keel::cuda
