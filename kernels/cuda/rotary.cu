// Rotary positions, and the RMS norm of each head in front: a block for each position.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rotary_units.h"

namespace keel::cuda {
namespace {

template <class T>
struct RotaryHeads {
  RotaryRows<const T> x;
  RotaryRows<T> out;
  RotaryTurns turns;
  std::int64_t heads;
  bool in_place;
  const T* weight;  // (size), with a norm
  float* rstd;      // (batch, heads, time)
  float epsilon;
};

// Threads along x have units of a head, which they turn by the same angles in every blockDim.y-th head.
template <class T, int N>
__global__ void __launch_bounds__(kRotaryThreads) rotary_kernel(RotaryHeads<T> args) {
  const std::int64_t b = blockIdx.x / args.turns.time, t = blockIdx.x - b * args.turns.time;
  const std::int64_t row = args.turns.row_of(b, t);
  for (int u = static_cast<int>(threadIdx.x); u < units_of<N>(args.turns); u += static_cast<int>(blockDim.x)) {
    const RotaryUnit<N> unit(args.turns, u);
    if (args.in_place && !unit.turned) continue;
    const UnitTurn<N> turn(args.turns, unit, row);
    for (std::int64_t h = threadIdx.y; h < args.heads; h += blockDim.y) {
      float first[N], second[N];
      unit.load(args.x.at(b, h, t), first, second);
      turn(first, second);
      unit.store(args.out.at(b, h, t), first, second);
    }
  }
}

// The lanes along x share a head. Its second reading finds it in the cache.
template <class T, int N>
__global__ void __launch_bounds__(kRotaryThreads) rotary_norm_kernel(RotaryHeads<T> args) {
  const std::int64_t b = blockIdx.x / args.turns.time, t = blockIdx.x - b * args.turns.time;
  const std::int64_t row = args.turns.row_of(b, t);
  const int lane = static_cast<int>(threadIdx.x), lanes = static_cast<int>(blockDim.x), units = units_of<N>(args.turns);
  for (std::int64_t together = 0; together < args.heads; together += blockDim.y) {
    const std::int64_t h = together + threadIdx.y;
    const bool is_head = h < args.heads;
    float first[N], second[N], squares = 0;
    if (is_head)
      for (int u = lane; u < units; u += lanes) {
        RotaryUnit<N>(args.turns, u).load(args.x.at(b, h, t), first, second);
        for (const float value : first) squares = math::fma(value, value, squares);
        for (const float value : second) squares = math::fma(value, value, squares);
      }
    squares = sum_over_head(squares);
    if (!is_head) continue;
    const float rstd = math::rsqrt(squares / static_cast<float>(args.turns.size) + args.epsilon);
    if (lane == 0) args.rstd[(b * args.heads + h) * args.turns.time + t] = rstd;
    for (int u = lane; u < units; u += lanes) {
      const RotaryUnit<N> unit(args.turns, u);
      float weight_first[N], weight_second[N];
      unit.load(args.x.at(b, h, t), first, second);
      unit.load(args.weight, weight_first, weight_second);
      for (int i = 0; i < N; ++i) {
        first[i] = first[i] * rstd * weight_first[i];
        second[i] = second[i] * rstd * weight_second[i];
      }
      UnitTurn<N>(args.turns, unit, row)(first, second);
      unit.store(args.out.at(b, h, t), first, second);
    }
  }
}

template <class T, int N>
void launch_rotary(const RotaryHeads<T>& heads, const RotaryArgs& args) {
  const unsigned grid = grid_of(args.x.dim(0) * args.x.dim(2));
  const int units = units_of<N>(heads.turns);
  if (heads.weight != nullptr) {
    const int lanes = lanes_of_head(units);
    const dim3 block(static_cast<unsigned>(lanes), static_cast<unsigned>(kRotaryThreads / lanes));
    launch("rotary_norm", rotary_norm_kernel<T, N>, {grid, block}, stream_of(args.x), heads);
    return;
  }
  const int across = std::min(units, kRotaryThreads);
  const auto together = std::min<std::int64_t>(heads.heads, kRotaryThreads / across);
  launch("rotary", rotary_kernel<T, N>, {grid, dim3(static_cast<unsigned>(across), static_cast<unsigned>(together))},
         stream_of(args.x), heads);
}

void rotary(const RotaryArgs& args) {
  visit_kernel_type("rotary", args.x.dtype(), args.x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.x.numel() == 0) return;
    RotaryHeads<T> heads{RotaryRows<const T>(args.x),
                         RotaryRows<T>(args.out),
                         RotaryTurns(args, args.inverse),
                         args.x.dim(1),
                         args.x.raw() == args.out.raw(),
                         nullptr,
                         nullptr,
                         static_cast<float>(args.epsilon)};
    bool packs = packs_fit<T>(heads.turns, {&args.x, &args.out});
    if (args.weight.defined()) {
      heads.weight = args.weight.data<T>();
      heads.rstd = args.rstd.data<float>();
      packs = packs && packs_fit(heads.weight, args.x.dim(3));
    }
    if (packs) launch_rotary<T, Pack<T>::kSize>(heads, args);
    else launch_rotary<T, 1>(heads, args);
  });
}

}  // namespace

void add_rotary(KernelTable& table) {
  table.rotary = rotary;
  table.rotary_norm_backward = rotary_norm_backward;
}

}  // namespace keel::cuda
