// Choosing elements: gather, index select and its transpose, top-k.

#include <algorithm>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/rows_by_index.h"
#include "keel/kernels/cuda/sort.h"
#include "keel/kernels/cuda/strides.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

struct Gather {
  const void* x;              // (outer, extent, inner)
  const std::int64_t* index;  // (outer, picks, inner)
  void* out;
  Shape shape;  // of index
  std::int64_t count, extent, inner;
  Fault* fault;
};

template <class Word>
__global__ void gather_kernel(Gather gather) {
  constexpr int kWords = 4;  // of a thread, all on their way at once
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kWords) + threadIdx.x;
  Word words[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    words[w] = Word{};
    const std::int64_t i = first + w * kThreads;
    if (i >= gather.count) continue;
    const Place at(gather.shape, i);
    const std::int64_t index = gather.index[i];
    if (index >= 0 && index < gather.extent)
      words[w] = static_cast<const Word*>(gather.x)[(at.outer * gather.extent + index) * gather.inner + at.column];
    else raise_fault(gather.fault, FaultKind::gather_index, i, index, gather.extent);
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w)
    if (first + w * kThreads < gather.count) static_cast<Word*>(gather.out)[first + w * kThreads] = words[w];
}

void gather(const GatherArgs& args) {
  if (args.out.numel() == 0) return;
  const Gather gather{args.x.raw(),       args.index.data<std::int64_t>(),
                      args.out.raw(),     Shape(args.index.shape()),
                      args.index.numel(), args.x.dim(1),
                      args.x.dim(2),      args.x.context().api().fault()};
  const auto blocks = static_cast<unsigned>(ceil_div(gather.count, kThreads * 4));
  visit_word(size_of(args.x.dtype()), [&](auto tag) {
    launch("gather", gather_kernel<typename decltype(tag)::type>, {blocks, kThreads}, stream_of(args.out), gather);
  });
}

void index_select(const IndexSelectArgs& args) {
  copy_rows("index_select", args.x, args.index, args.out, FaultKind::select_index);
}

void index_add(const IndexSelectArgs& args) {
  add_rows("index_add", args.out, args.index, args.x, true, FaultKind::add_index);
}

// Unsigned numbers that ascend as numbers descend: NaN first, then infinity; -0 is 0.
template <class T>
__device__ unsigned descending_key(T value) {
  const float x = widen(value);
  if (x != x) return 0;
  const unsigned bits = x == 0 ? 0 : __float_as_uint(x);
  return bits >> 31 != 0 ? bits : ~bits & 0x7fffffffu;
}
// The lowest bit in which the keys of numbers of one sign differ.
template <class T>
constexpr int kLowestBit = std::is_same_v<T, bf16>  ? 16
                           : std::is_same_v<T, f16> ? 13
                                                    : 0;

struct TopK {
  const void* x;  // (rows, cols)
  void* values;   // (rows, k)
  std::int64_t* indices;
  std::int64_t rows, cols, k;

  template <class T>
  __device__ void put(std::int64_t row, std::int64_t place, std::int64_t index) const {
    static_cast<T*>(values)[row * k + place] = static_cast<const T*>(x)[row * cols + index];
    indices[row * k + place] = index;
  }
};

struct Smaller {
  __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a < b ? a : b; }
};

constexpr int kHeld = 8;  // elements of a thread that stay in registers

// Picks one element after the other; `Lanes` threads, a warp or a block, share a row. An element's rank, its key above
// its index, is unlike all others, so the next one has the least rank above the last one's.
template <class T, int Lanes>
__global__ void pick_largest_kernel(TopK top) {
  KEEL_SHARED(std::uint64_t, scratch, kWarp);
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / Lanes) + threadIdx.x / Lanes;
  if (row >= top.rows) return;  // with all its lanes
  const int lane = static_cast<int>(threadIdx.x % Lanes);
  const T* const x = static_cast<const T*>(top.x) + row * top.cols;
  const auto rank = [&](std::int64_t i) {
    return static_cast<std::uint64_t>(descending_key(x[i])) << 32 | static_cast<std::uint64_t>(i);
  };
  const bool holds = top.cols <= Lanes * kHeld;
  std::uint64_t held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) held[h] = holds && lane + h * Lanes < top.cols ? rank(lane + h * Lanes) : kNone;
  std::uint64_t least = 0;  // that may be picked
  for (std::int64_t place = 0; place < top.k; ++place) {
    std::uint64_t best = kNone;
    const auto consider = [&](std::uint64_t candidate) {
      if (candidate >= least && candidate < best) best = candidate;
    };
    if (holds) {
#pragma unroll
      for (int h = 0; h < kHeld; ++h) consider(held[h]);
    } else {
#pragma unroll 4
      for (std::int64_t i = lane; i < top.cols; i += Lanes) consider(rank(i));
    }
    best = Lanes == kWarp ? reduce_warp(best, Smaller{}) : reduce_block(best, kNone, Smaller{}, scratch);
    if (lane == 0) top.put<T>(row, place, static_cast<std::int64_t>(best & 0xffffffffu));
    least = best + 1;
  }
}

template <class T>
__global__ void make_descending_keys_kernel(const T* x, std::int64_t count, int* keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) keys[i] = static_cast<int>(descending_key(x[i]));
}

// positions: (rows, cols), in descending order
template <class T>
__global__ void take_first_kernel(TopK top, const int* positions) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= top.rows * top.k) return;
  const std::int64_t row = i / top.k, place = i % top.k;
  top.put<T>(row, place, positions[row * top.cols + place]);
}

// Sorts whole rows, as many at once as kSorted elements allow.
template <class T>
void sort_largest(const TopKArgs& args) {
  constexpr std::int64_t kSorted = std::int64_t{1} << 24;
  const cudaStream_t stream = stream_of(args.x);
  const std::int64_t cols = args.x.dim(1), at_once = std::max<std::int64_t>(1, kSorted / cols);
  for (std::int64_t row = 0; row < args.x.dim(0); row += at_once) {
    const std::int64_t end = std::min(args.x.dim(0), row + at_once);
    const Tensor x = args.x.slice(0, row, end), values = args.values.slice(0, row, end);
    const Tensor indices = args.indices.slice(0, row, end);
    const TopK top{x.raw(), values.raw(), indices.data<std::int64_t>(), end - row, cols, values.dim(1)};
    const Tensor keys = empty(x.context(), x.shape(), DType::i32, Purpose::workspace);
    launch("top_k", make_descending_keys_kernel<T>, {static_cast<unsigned>(ceil_div(x.numel(), kThreads)), kThreads},
           stream, x.data<T>(), x.numel(), keys.data<int>());
    const SortedRows sorted = sort_rows(keys, kLowestBit<T>, 32);
    launch("top_k", take_first_kernel<T>, {static_cast<unsigned>(ceil_div(values.numel(), kThreads)), kThreads}, stream,
           top, sorted.positions.data<int>());
  }
}

void top_k(const TopKArgs& args) {
  if (args.values.numel() == 0) return;
  const TopK top{args.x.raw(),  args.values.raw(), args.indices.data<std::int64_t>(),
                 args.x.dim(0), args.x.dim(1),     args.values.dim(1)};
  KEEL_CHECK(top.cols < INT32_MAX, "top_k: ", args.x, " has too many columns for ", args.x.device());
  visit_kernel_type("top_k", args.x.dtype(), args.x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Each pick reads the row again, from registers or from memory; a sort reads it a few times in all.
    constexpr std::int64_t kFewPicks = 8, kFewHeldPicks = 64;
    const bool picks = top.k <= kFewPicks || (top.k <= kFewHeldPicks && top.cols <= kThreads * kHeld);
    if (!picks) return sort_largest<T>(args);
    if (top.cols <= kWarp * kHeld)
      launch("top_k", pick_largest_kernel<T, kWarp>,
             {static_cast<unsigned>(ceil_div(top.rows, kThreads / kWarp)), kThreads}, stream_of(args.x), top);
    else
      launch("top_k", pick_largest_kernel<T, kThreads>, {static_cast<unsigned>(top.rows), kThreads}, stream_of(args.x),
             top);
  });
}

}  // namespace

void add_select(KernelTable& table) {
  table.gather = gather;
  table.index_select = index_select;
  table.index_add = index_add;
  table.top_k = top_k;
}

}  // namespace keel::cuda
