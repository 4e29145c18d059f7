// Matrix products: a plain tiled kernel for every dtype and layout, and the choice between it and tensor cores.

#include "keel/kernels/cuda/matmul.h"

#include <tuple>
#include <utility>

#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;  // of a block: 16 x 16
constexpr int kDepth = 16;     // of k in a tile

// One operand's tiles on their way to shared memory, as fp32 and with k outermost: (kDepth, 16 kPer). "Side" is m for
// the left operand and n for the right one. Threads that are neighbours load neighbours in memory.
template <class T, int kPer>
struct TileLoader {
  static constexpr int kSide = 16 * kPer;
  static constexpr int kPitch = kSide + 4;             // floats from one k to the next in shared memory
  static constexpr int kDepthStep = kThreads / kSide;  // where neighbours lie along the side
  static constexpr int kSideStep = kThreads / kDepth;  // where they lie along k
  bool along_k;
  int place;               // of the thread's first element in a tile in shared memory
  int sides, depths;       // that exist from there on
  const T* next;           // that element of the next tile
  std::int64_t step, hop;  // from element to element of the thread, and from tile to tile
  float held[kPer];

  __device__ TileLoader(const T* matrix, std::int64_t side_stride, std::int64_t k_stride, int first, int side_count,
                        int k_begin, int k_end)
      : along_k(k_stride == 1) {
    const int thread = static_cast<int>(threadIdx.x);
    const int side = along_k ? thread / kDepth : thread % kSide;
    const int depth = along_k ? thread % kDepth : thread / kSide;
    place = depth * kPitch + side;
    sides = side_count - first - side;
    depths = k_end - k_begin - depth;
    next = matrix + (first + side) * side_stride + (k_begin + depth) * k_stride;
    step = along_k ? kSideStep * side_stride : kDepthStep * k_stride;
    hop = kDepth * k_stride;
  }
  // What lies past an edge is zero.
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const bool inside = along_k ? kSideStep * i < sides && depths > 0 : sides > 0 && kDepthStep * i < depths;
      held[i] = inside ? widen(next[i * step]) : 0.0f;
    }
    next += hop;
    depths -= kDepth;
  }
  template <class Span>
  __device__ void store(const Span& tile, int first) const {
#pragma unroll
    for (int i = 0; i < kPer; ++i) tile[first + place + i * (along_k ? kSideStep : kDepthStep * kPitch)] = held[i];
  }
};

// Each thread sums kPer x kPer elements of the output in registers, so that an element read from shared memory is
// multiplied kPer times. While one tile of k is multiplied, the next is on its way from global memory.
template <class T, int kPer>
__global__ void __launch_bounds__(kThreads, 2) plain_matmul_kernel(Product p) {
  using Loader = TileLoader<T, kPer>;
  constexpr int kSide = Loader::kSide, kPitch = Loader::kPitch, kTile = kDepth * kPitch;
  KEEL_SHARED(float, tiles, 4 * kTile);  // two of each operand
  BlockWork work = work_of_block<kSide, kSide>(p);
  const T* a = static_cast<const T*>(p.a) + p.batch_offset(Product::kA, work.batch);
  const T* b = static_cast<const T*>(p.b) + p.batch_offset(Product::kB, work.batch);
  Loader left(a, p.a_row, p.a_col, work.row, p.m, work.k_begin, work.k_end);
  Loader right(b, p.b_col, p.b_row, work.col, p.n, work.k_begin, work.k_end);

  // A thread's rows are neighbours; its columns are in runs of four, so that a warp's reads meet no bank twice.
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const bool idle = work.row + ty * kPer >= p.m || work.col + tx * 4 >= p.n;
  float sums[kPer][kPer] = {};
  const auto multiply = [&](int stage) {
    const int first = stage * 2 * kTile;
    for (int d = 0; d < kDepth; ++d) {
      float x[kPer], y[kPer];
#pragma unroll
      for (int i = 0; i < kPer; ++i) x[i] = tiles[first + d * kPitch + ty * kPer + i];
#pragma unroll
      for (int j = 0; j < kPer; ++j) y[j] = tiles[first + kTile + d * kPitch + (j / 4 * 16 + tx) * 4 + j % 4];
#pragma unroll
      for (int i = 0; i < kPer; ++i)
#pragma unroll
        for (int j = 0; j < kPer; ++j) sums[i][j] = math::fma(x[i], y[j], sums[i][j]);
    }
  };

  left.load();
  right.load();
  left.store(tiles, 0);
  right.store(tiles, kTile);
  __syncthreads();
  int stage = 0;
  for (int k = work.k_begin; k < work.k_end; k += kDepth, stage = 1 - stage) {
    left.load();
    right.load();
    if (!idle) multiply(stage);
    left.store(tiles, (1 - stage) * 2 * kTile);
    right.store(tiles, (1 - stage) * 2 * kTile + kTile);
    __syncthreads();
  }

  locate_output(p, work);
  // The tiles are free: sums become runs of eight columns there, 64 rows at a time.
  constexpr int kRowsAtOnce = 64, kRuns = kSide / 8;
  static_assert(kRowsAtOnce * kPitch == 4 * kTile);
#pragma unroll 1
  for (int top = 0; top < kSide; top += kRowsAtOnce) {
    if (ty * kPer / kRowsAtOnce == top / kRowsAtOnce)
#pragma unroll
      for (int i = 0; i < kPer; ++i)
#pragma unroll
        for (int j = 0; j < kPer; ++j)
          tiles[(ty * kPer + i - top) * kPitch + (j / 4 * 16 + tx) * 4 + j % 4] = sums[i][j];
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kRowsAtOnce * kRuns; i += kThreads) {
      const int row = i / kRuns, col = i % kRuns * 8;
      float run[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) run[c] = tiles[row * kPitch + col + c];
      put_sums<T>(p, work, work.row + top + row, work.col + col, run);
    }
    __syncthreads();
  }
}

// Adds the splits' sums in their order. A thread has eight columns of a row.
template <class T>
__global__ void add_splits_kernel(Product p, std::int64_t runs) {
  constexpr int kRun = 8;
  const std::int64_t run = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (run >= runs) return;
  const std::int64_t runs_of_row = p.partial_row / kRun, line = run / runs_of_row;
  const int col = static_cast<int>(run % runs_of_row) * kRun, row = static_cast<int>(line % p.m);
  BlockWork work = {};
  work.batch = static_cast<int>(line / p.m);
  locate_output(p, work);
  const std::int64_t step = static_cast<std::int64_t>(p.batches) * p.m * p.partial_row;
  const float* from = p.partial + line * p.partial_row + col;
  float sums[kRun], more[kRun];
  load_some(from, kRun, true, sums);
  for (int s = 1; s < p.splits; ++s) {
    load_some(from + s * step, kRun, true, more);
    for (int i = 0; i < kRun; ++i) sums[i] += more[i];
  }
  finish_sums<T>(p, work, row, col, sums);
}

int int_of(std::int64_t value, const MatmulArgs& args) {
  KEEL_CHECK(value < (std::int64_t{1} << 31) - 256, "matmul: ", args.a, " times ", args.b, " is too large for ",
             args.a.device());
  return static_cast<int>(value);
}

// Strides of rows and columns. Where an extent is 1 its stride has no meaning, and becomes what the tensor-core kernel
// takes: 1 along one of the two, a multiple of 8 along the other.
std::pair<std::int64_t, std::int64_t> strides_of(const Tensor& x) {
  std::int64_t row = x.stride(-2), col = x.stride(-1);
  if (x.dim(-1) <= 1) col = row == 1 && x.dim(-2) > 1 ? 0 : 1;
  if (x.dim(-2) <= 1) row = col == 1 ? 0 : 1;
  return {row, col};
}

Product product_of(const MatmulArgs& args) {
  Product p;
  p.m = int_of(args.out.dim(-2), args);
  p.n = int_of(args.out.dim(-1), args);
  p.k = int_of(args.a.dim(-1), args);
  // Of an operand without elements nothing is read, but its address is reckoned with, and must be one.
  p.a = args.a.numel() > 0 ? args.a.raw() : args.out.raw();
  p.b = args.b.numel() > 0 ? args.b.raw() : args.out.raw();
  p.out = args.out.raw();
  std::tie(p.a_row, p.a_col) = strides_of(args.a);
  std::tie(p.b_row, p.b_col) = strides_of(args.b);
  p.out_row = strides_of(args.out).first;
  p.alpha = args.alpha;
  p.accumulate = args.accumulate;
  p.epilogue = args.epilogue;
  p.out_is_float = args.out.dtype() == DType::f32;
  p.batches = int_of(args.out.numel() / (args.out.dim(-2) * args.out.dim(-1)), args);
  p.batch_rank = args.out.rank() - 2;

  bool runs = true;
  const auto see = [&](const Tensor& x, Product::Role role) {
    const bool written = role == Product::kOut || role == Product::kPreActivation;
    const std::int64_t unit = Pack<std::byte>::kSize / static_cast<std::int64_t>(size_of(x.dtype()));
    if (written)
      runs &= reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0 && (x.dim(-2) == 1 || x.stride(-2) % unit == 0);
    for (int d = 0; d < p.batch_rank; ++d) {
      p.batch_shape[d] = static_cast<int>(x.dim(d));
      p.batch_strides[role][d] = x.stride(d);
      if (written && x.dim(d) > 1) runs &= x.stride(d) % unit == 0;
    }
  };
  see(args.a, Product::kA);
  see(args.b, Product::kB);
  see(args.out, Product::kOut);
  if (args.pre_activation.defined()) {
    p.pre_activation = args.pre_activation.raw();
    p.pre_activation_row = strides_of(args.pre_activation).first;
    see(args.pre_activation, Product::kPreActivation);
  }
  if (args.bias.defined()) {
    p.bias = args.bias.raw();
    runs &= reinterpret_cast<std::uintptr_t>(p.bias) % 16 == 0;
  }
  p.runs = runs;
  return p;
}

// Calls queue(product), and adds what the splits summed.
template <class F>
void multiply_in_splits(const MatmulArgs& args, int splits, F&& queue) {
  Product product = product_of(args);
  if (splits == 1) return queue(product);
  product.splits = splits;
  product.partial_row = ceil_div(product.n, 8) * 8;
  const Tensor partial = empty(args.a.context(), {splits, product.batches, product.m, product.partial_row}, DType::f32,
                               Purpose::workspace);
  product.partial = partial.data<float>();
  queue(product);
  const std::int64_t runs = partial.numel() / splits / 8;
  visit_kernel_type("matmul", args.a.dtype(), args.a.device(), [&](auto tag) {
    launch("matmul: sum of splits", add_splits_kernel<typename decltype(tag)::type>,
           {grid_of(ceil_div(runs, kThreads)), kThreads}, stream_of(args.a), product, runs);
  });
}

// Rows or columns dense, and everything at multiples of 16 bytes.
bool fits_copies(const Tensor& x) {
  const auto aligned = [](std::int64_t stride) { return stride % 8 == 0; };
  if (reinterpret_cast<std::uintptr_t>(x.raw()) % 16 != 0) return false;
  const bool along_rows = x.dim(-1) == 1 || x.stride(-1) == 1;
  const bool along_cols = x.dim(-2) == 1 || x.stride(-2) == 1;
  if (!(along_rows && (x.dim(-2) == 1 || aligned(x.stride(-2)))) &&
      !(along_cols && (x.dim(-1) == 1 || aligned(x.stride(-1)))))
    return false;
  for (int d = 0; d < x.rank() - 2; ++d)
    if (x.dim(d) > 1 && !aligned(x.stride(d))) return false;
  return true;
}

}  // namespace

// Guesses the time of each way, in clock cycles of one multiprocessor, and takes the shortest. The machine is an H100:
// 132 multiprocessors, each of which reads 20 bytes in a cycle from the L2 cache. A tile's rates are the parts of the
// tensor cores' speed that one block reaches alone on a multiprocessor, and as many as fit there together.
MatmulPlan plan_matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches) {
  constexpr double kProcessors = 132, kProductsPerCycle = 1270, kBytesPerCycle = 20, kLaunch = 5000;
  constexpr std::int64_t kStartAndEnd = 256;             // of a block, in steps of k
  constexpr int kShortestSplit = 512, kMostSplits = 32;  // the first in steps of k
  struct Shape {
    MatmulTile tile;
    std::int64_t rows, cols;
    double together, alone_rate, rate;
  };
  constexpr Shape kShapes[] = {{MatmulTile::large, 128, 256, 1, 1.0, 1.0},
                               {MatmulTile::medium, 128, 128, 2, 0.65, 0.85},
                               {MatmulTile::small, 64, 64, 4, 0.3, 0.5}};
  MatmulPlan best;
  double shortest = INFINITY;
  for (const Shape& shape : kShapes) {
    for (int splits = 1; splits <= kMostSplits; ++splits) {
      if (splits > 1 && k / splits < kShortestSplit) break;
      const auto blocks = static_cast<double>(ceil_div(m, shape.rows) * ceil_div(n, shape.cols) * splits * batches);
      const auto products = static_cast<double>(shape.rows * shape.cols * (ceil_div(k, splits) + kStartAndEnd));
      const double waves = std::floor(blocks / (kProcessors * shape.together));
      const double rest = std::ceil(blocks / kProcessors - waves * shape.together);
      const double rest_rate =
          shape.together == 1 ? shape.rate
                              : shape.alone_rate + (shape.rate - shape.alone_rate) * (rest - 1) / (shape.together - 1);
      double cycles = (waves * shape.together / shape.rate + rest / rest_rate) * products / kProductsPerCycle;
      if (splits > 1)
        cycles += kLaunch + static_cast<double>(8 * splits * m * n * batches) / (kProcessors * kBytesPerCycle);
      if (cycles >= shortest) continue;
      shortest = cycles;
      best = {shape.tile, splits};
    }
  }
  return best;
}

bool fits_tensor_cores(const MatmulArgs& args) {
  return (args.a.dtype() == DType::bf16 || args.a.dtype() == DType::f16) && args.a.dim(-1) > 0 && fits_copies(args.a) &&
         fits_copies(args.b);
}

void multiply_on_tensor_cores(const MatmulArgs& args, const MatmulPlan& plan) {
  multiply_in_splits(args, plan.splits, [&](const Product& product) {
    if (args.a.dtype() == DType::bf16) launch_tensor_cores<bf16>(product, plan.tile, stream_of(args.a));
    else launch_tensor_cores<f16>(product, plan.tile, stream_of(args.a));
  });
}

void multiply_plain(const MatmulArgs& args, const MatmulPlan& plan) {
  visit_kernel_type("matmul", args.a.dtype(), args.a.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    multiply_in_splits(args, plan.splits, [&](const Product& product) {
      const auto run = [&](auto kernel, int side) {
        launch("matmul", kernel, {grid_of(count_blocks(product, side, side)), kThreads}, stream_of(args.a), product);
      };
      if (plan.tile == MatmulTile::small) run(plain_matmul_kernel<T, 4>, 64);
      else run(plain_matmul_kernel<T, 8>, 128);
    });
  });
}

void multiply_own(const MatmulArgs& args) {
  const std::int64_t m = args.out.dim(-2), n = args.out.dim(-1);
  const MatmulPlan plan = plan_matmul(m, n, args.a.dim(-1), args.out.numel() / (m * n));
  if (fits_tensor_cores(args)) multiply_on_tensor_cores(args, plan);
  else multiply_plain(args, plan);
}

std::string matmul_backend(const Context& context, DType dtype) {
  if (dtype == DType::f64) return concat("nothing: f64 is not multiplied on ", context.device());
#ifdef KEEL_HAVE_CUBLASLT
  if (context.kernel_choice() == KernelChoice::automatic) return cublaslt_backend(dtype);
#endif
  if (dtype == DType::f32) return "keel (fp32 units)";
  return "keel (tensor cores; fp32 units where rows begin at no multiple of 16 bytes)";
}

void add_matmul(KernelTable& table) { table.matmul = multiply_own; }

}  // namespace keel::cuda
