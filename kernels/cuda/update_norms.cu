// The updates that need norms over whole parameters, and what finds the norms.

#include "keel/kernels/cuda/update_kernel.h"

namespace keel::cuda {

namespace detail {

template <class Rule, std::size_t kKept, std::size_t... I>
__device__ auto measure(const Rule& rule, float gradient, float weight, const float (&kept)[kKept + 1][kQuad],
                        [[maybe_unused]] int element, std::index_sequence<I...>) {
  return rule.measure(gradient, weight, kept[I][element]...);
}

// partial[block][norm] = the sum of the squares of what the rule measures in the block's elements. Which thread adds
// what depends on the position alone.
template <class Settings, std::size_t kKept, class P, class G>
__global__ void measure_kernel(Flat<P, G, kKept> flat, Settings settings, RangeSettings range, const StepState* state,
                               double* partial) {
  using Rule = typename Settings::template Rule<float>;
  constexpr int kNorms = Settings::kNorms;
  if (state->taken == 0) return;
  KEEL_SHARED(Rule, shared_rule, 1);
  KEEL_SHARED(double, scratch, kWarp);
  if (threadIdx.x == 0) shared_rule[0] = Rule::of(settings, range, *state, nullptr);
  __syncthreads();
  const Rule rule = shared_rule[0];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * flat.per_block;
  const std::int64_t end = std::min(flat.count, begin + flat.per_block);
  double sums[kNorms] = {};
  for (std::int64_t at = begin + threadIdx.x * kQuad; at < end; at += kPass) {
    const int count = static_cast<int>(std::min(end - at, std::int64_t{kQuad}));
    const bool whole = flat.aligned && count == kQuad;
    float gradient[kQuad], weights[kQuad], kept[kKept + 1][kQuad];
    load_quad(flat.gradient + at, count, whole, gradient);
    if (flat.master != nullptr) load_quad(flat.master + at, count, whole, weights);
    else load_quad(flat.parameter + at, count, whole, weights);
#pragma unroll
    for (int k = 0; k < static_cast<int>(kKept); ++k) load_quad(flat.kept[k] + at, count, whole, kept[k]);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i >= count) break;
      const auto measures =
          measure<Rule, kKept>(rule, gradient[i], weights[i], kept, i, std::make_index_sequence<kKept>{});
#pragma unroll
      for (int n = 0; n < kNorms; ++n) {
        const auto wide = static_cast<double>(measures.values[n]);
        sums[n] = math::fma(wide, wide, sums[n]);
      }
    }
  }
  for (int n = 0; n < kNorms; ++n) {
    const double sum = reduce_block(sums[n], 0.0, Sum{}, scratch);
    if (threadIdx.x == 0) partial[static_cast<std::int64_t>(blockIdx.x) * kNorms + n] = sum;
  }
}

// A block for each norm.
__global__ void sum_partials_kernel(const double* partial, std::int64_t count, const StepState* state,
                                    double* squares) {
  if (state->taken == 0) return;
  KEEL_SHARED(double, scratch, kWarp);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i * gridDim.x + blockIdx.x];
  sum = reduce_block(sum, 0.0, Sum{}, scratch);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

template <class Settings, std::size_t kKept, class P, class G>
void run_measure(const Settings& settings, const UpdateArgs& args, const Tensor& squares) {
  const Flat<P, G, kKept> flat = flat_of<P, G, kKept>(args);
  const std::int64_t blocks = ceil_div(flat.count, flat.per_block);
  const Tensor partial = empty(squares.context(), {blocks * Settings::kNorms}, DType::f64, Purpose::workspace);
  const auto* const state = reinterpret_cast<const StepState*>(args.step.data<std::uint8_t>());
  if (blocks > 0)
    launch(Settings::kName.data(), measure_kernel<Settings, kKept, P, G>, {static_cast<unsigned>(blocks), kThreads},
           stream_of(squares), flat, settings, args.range, state, partial.data<double>());
  launch(Settings::kName.data(), sum_partials_kernel, {static_cast<unsigned>(Settings::kNorms), kThreads},
         stream_of(squares), partial.data<double>(), blocks, state, squares.data<double>());
}

}  // namespace detail

template <class Settings>
void measure_by(const Settings& settings, const UpdateArgs& args, const Tensor& squares) {
  visit_update(settings, args, [&]<std::size_t kKept, class P, class G>() {
    detail::run_measure<Settings, kKept, P, G>(settings, args, squares);
  });
}

template void update_by(const LambSettings&, const UpdateArgs&);
template void update_by(const LarsSettings&, const UpdateArgs&);
template void update_by(const AdafactorSettings&, const UpdateArgs&);
template void measure_by(const LambSettings&, const UpdateArgs&, const Tensor&);
template void measure_by(const LarsSettings&, const UpdateArgs&, const Tensor&);
template void measure_by(const AdafactorSettings&, const UpdateArgs&, const Tensor&);

}  // namespace keel::cuda
