#pragma once
// The update kernel: one for every rule of kernels/update.h, for the .cu files that share the rules out among them.

#include <algorithm>

#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/update.h"
#include "keel/kernels/stochastic_rounding.h"
#include "keel/kernels/update_rule.h"

namespace keel::cuda {

namespace detail {

constexpr int kThreads = 256;
constexpr int kQuad = 4;  // neighbouring elements of a thread: 16 bytes of fp32, 8 of a narrow parameter
constexpr int kPass = kThreads * kQuad;

template <class T>
struct alignas(kQuad * sizeof(T)) Quad {
  T values[kQuad];
};
// The bits of a Quad, as the streaming accesses take them.
template <class T>
using QuadBits = std::conditional_t<sizeof(T) == 4, uint4, uint2>;

// Up to four elements as fp32, none of which is used again soon.
template <class T>
__device__ void load_quad(const T* from, int count, bool whole, float (&out)[kQuad]) {
  if (whole) {
    const auto quad = std::bit_cast<Quad<T>>(__ldcs(reinterpret_cast<const QuadBits<T>*>(from)));
#pragma unroll
    for (int i = 0; i < kQuad; ++i) out[i] = widen(quad.values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) out[i] = i < count ? widen(from[i]) : 0;
  }
}
template <class T>
__device__ void store_quad(T* to, int count, bool whole, const T (&in)[kQuad]) {
  if (whole) {
    Quad<T> quad;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) quad.values[i] = in[i];
    __stcs(reinterpret_cast<QuadBits<T>*>(to), std::bit_cast<QuadBits<T>>(quad));
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      if (i < count) to[i] = in[i];
  }
}

// Flat tensors of one length, or some rows of them: then `gradient` alone has `count` elements.
template <class P, class G, std::size_t kKept>
struct Flat {
  P* parameter;
  float* master;  // null: `parameter` holds the weights itself
  const G* gradient;
  float* kept[kKept + 1];  // what the rule keeps for each element; the last is not used
  std::int64_t count;
  std::int64_t per_block;  // a multiple of kPass
  bool aligned;            // each begins where a quad may
};

// How a narrow parameter is stored: nearest, or at random; see stochastic_rounding.h.
struct Rounding {
  bool stochastic = false;
  std::uint64_t seed = 0, first = 0;
};

// Words at ... at + 3 of a stream.
__device__ inline void draw_quad(PhiloxKey key, std::uint64_t at, std::uint32_t (&words)[kQuad]) {
  const PhiloxWords block = stream_block(key, at / 4);
  const unsigned skipped = static_cast<unsigned>(at % 4);
  if (skipped == 0) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) words[i] = block[static_cast<std::size_t>(i)];
    return;
  }
  const PhiloxWords next = stream_block(key, at / 4 + 1);
#pragma unroll
  for (unsigned i = 0; i < 2 * kQuad; ++i) {
    const std::uint32_t word = i < kQuad ? block[i] : next[i - kQuad];
#pragma unroll
    for (unsigned w = 0; w < kQuad; ++w)
      if (i == w + skipped) words[w] = word;
  }
}

template <class P>
__device__ void store_weights(P* parameter, std::int64_t at, int count, bool whole, const float (&weights)[kQuad],
                              const Rounding& rounding, PhiloxKey key) {
  P narrowed[kQuad];
  if constexpr (!std::is_same_v<P, float>) {
    if (rounding.stochastic) {
      std::uint32_t words[kQuad] = {};
      draw_quad(key, rounding.first + static_cast<std::uint64_t>(at), words);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) narrowed[i] = round_stochastically<P>(weights[i], words[i]);
      return store_quad(parameter + at, count, whole, narrowed);
    }
  }
#pragma unroll
  for (int i = 0; i < kQuad; ++i) narrowed[i] = narrow<P>(weights[i]);
  store_quad(parameter + at, count, whole, narrowed);
}

template <class Rule, std::size_t kKept, std::size_t... I>
__device__ void apply(const Rule& rule, float gradient, float& weight, float (&kept)[kKept + 1][kQuad],
                      [[maybe_unused]] int element, std::index_sequence<I...>) {
  rule(gradient, weight, kept[I][element]...);
}

// The update of all elements by a rule, which one thread of each block prepares.
template <class Settings, std::size_t kKept, class P, class G>
__global__ void update_kernel(Flat<P, G, kKept> flat, Settings settings, RangeSettings range, const StepState* state,
                              const double* shared, Rounding rounding) {
  using Rule = typename Settings::template Rule<float>;
  if (state->taken == 0) return;
  KEEL_SHARED(Rule, shared_rule, 1);
  if (threadIdx.x == 0) shared_rule[0] = Rule::of(settings, range, *state, shared);
  __syncthreads();
  const Rule rule = shared_rule[0];
  const PhiloxKey key = rounding_key(rounding.seed, state->steps);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * flat.per_block;
  const std::int64_t end = std::min(flat.count, begin + flat.per_block);
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
    for (int i = 0; i < kQuad; ++i)
      apply<Rule, kKept>(rule, gradient[i], weights[i], kept, i, std::make_index_sequence<kKept>{});
#pragma unroll
    for (int k = 0; k < static_cast<int>(kKept); ++k) store_quad(flat.kept[k] + at, count, whole, kept[k]);
    if (flat.master != nullptr) store_quad(flat.master + at, count, whole, weights);
    store_weights(flat.parameter, at, count, whole, weights, rounding, key);
  }
}

// The update of the elements of some rows: a thread for each of them.
template <class Settings, std::size_t kKept, class P, class G>
__global__ void update_rows_kernel(Flat<P, G, kKept> flat, const std::int64_t* rows, std::int64_t width,
                                   Settings settings, RangeSettings range, const StepState* state, const double* shared,
                                   Rounding rounding) {
  using Rule = typename Settings::template Rule<float>;
  if (state->taken == 0) return;
  KEEL_SHARED(Rule, shared_rule, 1);
  if (threadIdx.x == 0) shared_rule[0] = Rule::of(settings, range, *state, shared);
  __syncthreads();
  const std::int64_t from = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (from >= flat.count) return;
  const std::int64_t at = rows[from / width] * width + from % width;
  float weights[kQuad] = {flat.master != nullptr ? flat.master[at] : widen(flat.parameter[at])};
  float kept[kKept + 1][kQuad];
#pragma unroll
  for (int k = 0; k < static_cast<int>(kKept); ++k) kept[k][0] = flat.kept[k][at];
  apply<Rule, kKept>(shared_rule[0], widen(flat.gradient[from]), weights[0], kept, 0,
                     std::make_index_sequence<kKept>{});
#pragma unroll
  for (int k = 0; k < static_cast<int>(kKept); ++k) flat.kept[k][at] = kept[k][0];
  if (flat.master != nullptr) flat.master[at] = weights[0];
  store_weights(flat.parameter, at, 1, false, weights, rounding, rounding_key(rounding.seed, state->steps));
}

// Few passes a block where there is little to do, so that all of the device has some; several where there is much, so
// that preparing the rule costs little.
inline std::int64_t elements_per_block(std::int64_t count) {
  constexpr std::int64_t kBlocks = 2048, kMostPasses = 8;
  return kPass * std::clamp<std::int64_t>(count / (kPass * kBlocks), 1, kMostPasses);
}

template <class T>
bool quads_fit(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % (kQuad * sizeof(T)) == 0;
}

template <class P, class G, std::size_t kKept>
Flat<P, G, kKept> flat_of(const UpdateArgs& args) {
  const std::int64_t count = args.gradient.numel();
  const auto floats = [](const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; };
  Flat<P, G, kKept> flat{args.parameter.data<P>(),
                         floats(args.master),
                         args.gradient.data<G>(),
                         {},
                         count,
                         elements_per_block(count),
                         false};
  flat.aligned = quads_fit(flat.parameter) && quads_fit(flat.master) && quads_fit(flat.gradient);
  for (std::size_t k = 0; k + 1 < std::size(flat.kept); ++k) {
    flat.kept[k] = args.state[k].data<float>();
    flat.aligned = flat.aligned && quads_fit(flat.kept[k]);
  }
  return flat;
}

template <class Settings, std::size_t kKept, class P, class G>
void run_update(const Settings& settings, const UpdateArgs& args) {
  const Flat<P, G, kKept> flat = flat_of<P, G, kKept>(args);
  const Rounding rounding{args.stochastic_rounding, rounding_seed(args.seed), static_cast<std::uint64_t>(args.first)};
  const auto* const state = reinterpret_cast<const StepState*>(args.step.data<std::uint8_t>());
  const double* const shared = args.shared.defined() ? args.shared.data<double>() : nullptr;
  const cudaStream_t stream = stream_of(args.parameter);
  if constexpr (kUpdatesRows<Settings>) {
    if (args.rows.defined()) {
      const Tensor rows = transfer(args.rows, args.parameter.context(), Purpose::workspace);
      launch(Settings::kName.data(), update_rows_kernel<Settings, kKept, P, G>,
             {static_cast<unsigned>(ceil_div(flat.count, kThreads)), kThreads}, stream, flat, rows.data<std::int64_t>(),
             args.gradient.dim(1), settings, args.range, state, shared, rounding);
      return;
    }
  }
  launch(Settings::kName.data(), update_kernel<Settings, kKept, P, G>,
         {static_cast<unsigned>(ceil_div(flat.count, flat.per_block)), kThreads}, stream, flat, settings, args.range,
         state, shared, rounding);
}

}  // namespace detail

// Calls run.operator()<kept numbers, type of the parameter, type of the gradient>().
template <class Settings, class Run>
void visit_update(const Settings& settings, const UpdateArgs& args, const Run& run) {
  visit_kept(settings, [&]<std::size_t kKept>(std::integral_constant<std::size_t, kKept>) {
    visit_kernel_type(Settings::kName.data(), args.parameter.dtype(), args.parameter.device(), [&](auto tag) {
      using P = typename decltype(tag)::type;
      if (args.gradient.dtype() == args.parameter.dtype()) run.template operator()<kKept, P, P>();
      else run.template operator()<kKept, P, float>();
    });
  });
}

template <class Settings>
void update_by(const Settings& settings, const UpdateArgs& args) {
  if (args.gradient.numel() == 0) return;
  visit_update(settings, args, [&]<std::size_t kKept, class P, class G>() {
    detail::run_update<Settings, kKept, P, G>(settings, args);
  });
}

}  // namespace keel::cuda
