// What an optimizer does to numbers on a device: AdamW and SGD on flat ranges, sums of squares, the step's decision.

#include <algorithm>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"
#include "keel/kernels/step_rule.h"
#include "keel/kernels/stochastic_rounding.h"
#include "keel/kernels/update_rule.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQuad = 4;  // neighbouring elements of a thread: 16 bytes of fp32, 8 of a narrow parameter
constexpr int kPass = kThreads * kQuad;

StepState* state_of(const Tensor& step) { return reinterpret_cast<StepState*>(step.data<std::uint8_t>()); }

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

// Flat tensors of one length.
template <class P, class G>
struct Flat {
  P* parameter;
  float* master;  // null: `parameter` holds the weights itself
  const G* gradient;
  float *state1, *state2;  // what the rule keeps for each element; may be null
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

// The update of all elements by a rule of so many kept numbers, which one thread of each block prepares.
template <int kKept, class Rule, class Settings, class P, class G>
__global__ void update_kernel(Flat<P, G> flat, Settings settings, const StepState* state, Rounding rounding) {
  if (state->taken == 0) return;
  KEEL_SHARED(Rule, shared_rule, 1);
  if (threadIdx.x == 0) shared_rule[0] = Rule::of(settings, *state);
  __syncthreads();
  const Rule rule = shared_rule[0];
  const PhiloxKey key = rounding_key(rounding.seed, state->steps);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * flat.per_block;
  const std::int64_t end = std::min(flat.count, begin + flat.per_block);
  for (std::int64_t at = begin + threadIdx.x * kQuad; at < end; at += kPass) {
    const int count = static_cast<int>(std::min(end - at, std::int64_t{kQuad}));
    const bool whole = flat.aligned && count == kQuad;
    float gradient[kQuad], weights[kQuad], state1[kQuad] = {}, state2[kQuad] = {};
    load_quad(flat.gradient + at, count, whole, gradient);
    if (flat.master != nullptr) load_quad(flat.master + at, count, whole, weights);
    else load_quad(flat.parameter + at, count, whole, weights);
    if constexpr (kKept >= 1) load_quad(flat.state1 + at, count, whole, state1);
    if constexpr (kKept >= 2) load_quad(flat.state2 + at, count, whole, state2);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if constexpr (kKept == 0) rule(gradient[i], weights[i]);
      else if constexpr (kKept == 1) rule(gradient[i], weights[i], state1[i]);
      else rule(gradient[i], weights[i], state1[i], state2[i]);
    }
    if constexpr (kKept >= 1) store_quad(flat.state1 + at, count, whole, state1);
    if constexpr (kKept >= 2) store_quad(flat.state2 + at, count, whole, state2);
    if (flat.master != nullptr) store_quad(flat.master + at, count, whole, weights);
    store_weights(flat.parameter, at, count, whole, weights, rounding, key);
  }
}

// Few passes a block where there is little to do, so that all of the device has some; several where there is much, so
// that preparing the rule costs little.
std::int64_t elements_per_block(std::int64_t count) {
  constexpr std::int64_t kBlocks = 2048, kMostPasses = 8;
  return kPass * std::clamp<std::int64_t>(count / (kPass * kBlocks), 1, kMostPasses);
}

template <class T>
bool quads_fit(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % (kQuad * sizeof(T)) == 0;
}

template <int kKept, class Rule, class Args>
void update(const char* name, const Args& args, const Tensor& state1, const Tensor& state2, const Rounding& rounding) {
  const std::int64_t count = args.parameter.numel();
  if (count == 0) return;
  visit_kernel_type(name, args.parameter.dtype(), args.parameter.device(), [&](auto tag) {
    using P = typename decltype(tag)::type;
    const auto run = [&](auto gradient) {
      using G = typename decltype(gradient)::type;
      const auto floats = [](const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; };
      Flat<P, G> flat{args.parameter.template data<P>(),
                      floats(args.master),
                      args.gradient.template data<G>(),
                      floats(state1),
                      floats(state2),
                      count,
                      elements_per_block(count),
                      false};
      flat.aligned = quads_fit(flat.parameter) && quads_fit(flat.master) && quads_fit(flat.gradient) &&
                     quads_fit(flat.state1) && quads_fit(flat.state2);
      const auto settings = settings_of(args);
      launch(name, update_kernel<kKept, Rule, std::remove_const_t<decltype(settings)>, P, G>,
             {static_cast<unsigned>(ceil_div(count, flat.per_block)), kThreads}, stream_of(args.parameter), flat,
             settings, state_of(args.step), rounding);
    };
    if (args.gradient.dtype() == args.parameter.dtype()) run(TypeTag<P>{});
    else run(TypeTag<float>{});
  });
}

void adamw(const AdamWArgs& args) {
  const Rounding rounding{args.stochastic_rounding, rounding_seed(args.seed), static_cast<std::uint64_t>(args.first)};
  update<2, AdamWRule<float>>("adamw", args, args.m, args.v, rounding);
}

void sgd(const SgdArgs& args) {
  if (args.momentum_buffer.defined()) update<1, SgdRule<float>>("sgd", args, args.momentum_buffer, {}, {});
  else update<0, SgdRule<float>>("sgd", args, {}, {}, {});
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

__global__ void add_tokens_kernel(StepState* state, double tokens) { state->partial.tokens += tokens; }

void add_tokens(const Tensor& step, double tokens) {
  launch("add_tokens", add_tokens_kernel, {1, 1}, stream_of(step), state_of(step), tokens);
}

__global__ void decide_step_kernel(StepState* state, StepRule rule) { rule(*state); }

void decide_step(const StepArgs& args) {
  launch("decide_step", decide_step_kernel, {1, 1}, stream_of(args.state), state_of(args.state), StepRule(args));
}

}  // namespace

void add_update(KernelTable& table) {
  table.adamw = adamw;
  table.sgd = sgd;
  table.add_squares = add_squares;
  table.add_tokens = add_tokens;
  table.decide_step = decide_step;
}

}  // namespace keel::cuda
