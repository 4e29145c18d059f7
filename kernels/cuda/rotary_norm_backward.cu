// The derivative of an RMS norm of heads followed by a rotation: a block for each chunk of positions, so that the sums
// of the weight's gradient have a fixed order.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rotary_units.h"

namespace keel::cuda {
namespace {

template <class T>
struct RotaryNormBack {
  RotaryRows<const T> x, grad_out;
  RotaryRows<T> grad_x;
  RotaryTurns turns;
  std::int64_t heads, places, chunk;  // positions of all rows, and of a chunk
  const T* weight;                    // (size)
  const float* rstd;                  // (batch, heads, time)
  float* partials;                    // (chunks, size), or null
};

// With g the gradient turned back and x_hat = x rstd: grad_weight = sum(g x_hat), and
//   grad_x = rstd (g weight - x_hat mean(g weight x_hat)).
// The lanes along x share a head, and threads of one x and y have the same elements of every head; their sums lie in
// shared memory until all are made.
template <class T, int N>
__global__ void __launch_bounds__(kRotaryThreads) rotary_norm_backward_kernel(RotaryNormBack<T> args) {
  const auto sums = dynamic_span<float>();
  const int lane = static_cast<int>(threadIdx.x), lanes = static_cast<int>(blockDim.x), units = units_of<N>(args.turns);
  const int size = args.turns.size, own = static_cast<int>(threadIdx.y) * size;
  const auto each_unit = [&](const auto& f) {
    for (int u = lane; u < units; u += lanes) f(RotaryUnit<N>(args.turns, u));
  };
  if (args.partials != nullptr)
    each_unit([&](const RotaryUnit<N>& unit) {
      for (int i = 0; i < N; ++i) {
        sums[own + unit.first + i] = 0;
        if (unit.whole) sums[own + unit.second + i] = 0;
      }
    });

  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * args.chunk;
  const std::int64_t end = begin + args.chunk < args.places ? begin + args.chunk : args.places;
  for (std::int64_t place = begin; place < end; ++place) {
    const std::int64_t b = place / args.turns.time, t = place - b * args.turns.time;
    const std::int64_t row = args.turns.row_of(b, t);
    for (std::int64_t together = 0; together < args.heads; together += blockDim.y) {
      const std::int64_t h = together + threadIdx.y;
      const bool is_head = h < args.heads;
      float grad[2][N], x[2][N], weight[2][N], rstd = 0, dot = 0;
      const auto read = [&](const RotaryUnit<N>& unit) {
        unit.load(args.grad_out.at(b, h, t), grad[0], grad[1]);
        unit.load(args.x.at(b, h, t), x[0], x[1]);
        unit.load(args.weight, weight[0], weight[1]);
        UnitTurn<N>(args.turns, unit, row)(grad[0], grad[1]);
      };
      if (is_head) {
        rstd = args.rstd[(b * args.heads + h) * args.turns.time + t];
        each_unit([&](const RotaryUnit<N>& unit) {
          read(unit);
          for (int run = 0; run < (unit.whole ? 2 : 1); ++run)
            for (int i = 0; i < N; ++i) {
              const float product = grad[run][i] * x[run][i];
              dot = math::fma(product, weight[run][i], dot);
              if (args.partials == nullptr) continue;
              const int at = own + (run == 0 ? unit.first : unit.second) + i;
              sums[at] = math::fma(product, rstd, static_cast<float>(sums[at]));
            }
        });
      }
      dot = sum_over_head(dot);
      if (!is_head) continue;
      const float slope = rstd * rstd * dot / static_cast<float>(size);
      each_unit([&](const RotaryUnit<N>& unit) {
        read(unit);
        for (int run = 0; run < 2; ++run)
          for (int i = 0; i < N; ++i) grad[run][i] = rstd * (grad[run][i] * weight[run][i] - x[run][i] * slope);
        unit.store(args.grad_x.at(b, h, t), grad[0], grad[1]);
      });
    }
  }

  if (args.partials == nullptr) return;
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y) * lanes + lane;
  for (int i = thread; i < size; i += lanes * static_cast<int>(blockDim.y)) {
    float sum = 0;
    for (int y = 0; y < static_cast<int>(blockDim.y); ++y) sum += sums[y * size + i];
    args.partials[static_cast<std::int64_t>(blockIdx.x) * size + i] = sum;
  }
}

// Rows of sums that fit into the shared memory of a block beside others.
constexpr std::int64_t kMostSums = 8192;

template <class T, int N>
void launch_back(const RotaryNormBack<T>& back, std::int64_t chunks, const Tensor& x) {
  const int lanes = lanes_of_head(units_of<N>(back.turns)), heads_of_warp = kWarp / lanes;
  std::int64_t together = kRotaryThreads / lanes;
  while (together > heads_of_warp && together * back.turns.size > kMostSums) together /= 2;
  const std::size_t bytes =
      back.partials == nullptr ? 0 : static_cast<std::size_t>(together * back.turns.size) * sizeof(float);
  launch("rotary_norm_backward", rotary_norm_backward_kernel<T, N>,
         {grid_of(chunks), dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(together)), bytes}, stream_of(x),
         back);
}

}  // namespace

void rotary_norm_backward(const RotaryBackwardArgs& args, const Tensor& partials) {
  const RotaryArgs& forward = args.forward;
  visit_kernel_type("rotary_norm_backward", forward.x.dtype(), forward.x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t places = forward.x.dim(0) * forward.x.dim(2);
    if (forward.x.numel() == 0) {
      if (partials.defined()) kernel_table(forward.x.context()).fill(partials, 0);
      return;
    }
    const std::int64_t chunks = partials.defined() ? partials.dim(0) : places;
    const RotaryNormBack<T> back{RotaryRows<const T>(forward.x),
                                 RotaryRows<const T>(args.grad_out),
                                 RotaryRows<T>(args.grad_x),
                                 RotaryTurns(forward, true),
                                 forward.x.dim(1),
                                 places,
                                 ceil_div(places, chunks),
                                 forward.weight.data<T>(),
                                 forward.rstd.data<float>(),
                                 partials.defined() ? partials.data<float>() : nullptr};
    const bool packs = packs_fit<T>(back.turns, {&forward.x, &args.grad_out, &args.grad_x}) &&
                       packs_fit(back.weight, forward.x.dim(3));
    if (packs) launch_back<T, Pack<T>::kSize>(back, chunks, forward.x);
    else launch_back<T, 1>(back, chunks, forward.x);
  });
}

}  // namespace keel::cuda
