// Moving numbers: copies between any layouts and dtypes, fill, where, and in-place sums and products.

#include <algorithm>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/operand.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

// Words of one size, whatever they mean: a copy within a dtype keeps every bit.
struct WordCopy {
  const void* from;
  void* to;
  std::int64_t count;
  Shape shape;
  std::int64_t from_strides[kMaxRank], to_strides[kMaxRank];

  WordCopy(const void* from, void* to, const CopyPlan& plan)
      : from(from), to(to), count(product(plan.shape)), shape(plan.shape) {
    for (int d = 0; d < shape.rank; ++d) {
      from_strides[d] = plan.from[d];
      to_strides[d] = plan.to[d];
    }
  }
};

template <class Word>
__global__ void copy_words_kernel(WordCopy copy) {
  constexpr int kWords = 4;  // of a thread, all on their way at once
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kWords) + threadIdx.x;
  Word words[kWords];
  std::int64_t targets[kWords];
  for (int w = 0; w < kWords; ++w) {
    const std::int64_t i = first + w * kThreads;
    if (i >= copy.count) continue;
    std::int64_t source = 0, target = 0;
    copy.shape.for_each_coordinate(i, [&](int d, std::int64_t at) {
      source += at * copy.from_strides[d];
      target += at * copy.to_strides[d];
    });
    words[w] = static_cast<const Word*>(copy.from)[source];
    targets[w] = target;
  }
  for (int w = 0; w < kWords; ++w)
    if (first + w * kThreads < copy.count) static_cast<Word*>(copy.to)[targets[w]] = words[w];
}

// The plan in the widest words of at most 16 bytes that divide every run, stride and address; returns their size.
std::size_t widen_words(CopyPlan& plan, const void* from, const void* to, std::size_t size) {
  const int last = plan.shape.size() - 1;
  if (plan.from[last] != 1 || plan.to[last] != 1) return size;
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) | 16;
  all |= static_cast<std::uint64_t>(plan.shape[last]) * size;
  for (int d = 0; d < last; ++d) all |= static_cast<std::uint64_t>(plan.from[d] | plan.to[d]) * size;
  const std::uint64_t word = all & (~all + 1);  // the lowest bit that any of them has
  const auto elements = static_cast<std::int64_t>(word / size);
  plan.shape[last] /= elements;
  for (int d = 0; d < last; ++d) {
    plan.from[d] /= elements;
    plan.to[d] /= elements;
  }
  return word;
}

// Planes that are dense along one dimension in the source and along the other in the target:
// to[f * to_stride + t] = from[f + t * from_stride].
struct TransposedCopy {
  const void* from;
  void* to;
  std::int64_t from_extent, to_extent;  // of f and t
  std::int64_t from_stride, to_stride;
  Shape outer;
  std::int64_t from_outer[kMaxRank], to_outer[kMaxRank];
};

// Narrow words take larger tiles, so that a row of one is still two sectors of memory.
template <class Word>
constexpr int kTileSide = sizeof(Word) <= 2 ? 64 : 32;

// A tile passes through shared memory, whose rows are one bank longer than the tile's: both sides then move along
// memory and meet each bank once.
template <class Word>
__global__ void copy_transposed_kernel(TransposedCopy copy) {
  using Kept = std::conditional_t<sizeof(Word) == 1, std::uint16_t, Word>;
  constexpr int kSide = kTileSide<Word>, kPitch = kSide + (sizeof(Kept) == 2 ? 2 : 1);
  KEEL_SHARED(Kept, tile, kSide * kPitch);
  const std::int64_t across = ceil_div(copy.from_extent, kSide), down = ceil_div(copy.to_extent, kSide);
  const std::int64_t plane = blockIdx.x / (across * down), in_plane = blockIdx.x - plane * across * down;
  const std::int64_t f = in_plane % across * kSide, t = in_plane / across * kSide;
  std::int64_t source = f + t * copy.from_stride, target = f * copy.to_stride + t;
  copy.outer.for_each_coordinate(plane, [&](int d, std::int64_t at) {
    source += at * copy.from_outer[d];
    target += at * copy.to_outer[d];
  });
  const Word* const from = static_cast<const Word*>(copy.from) + source;
  Word* const to = static_cast<Word*>(copy.to) + target;
  const int columns = static_cast<int>(std::min(copy.from_extent - f, std::int64_t{kSide}));
  const int rows = static_cast<int>(std::min(copy.to_extent - t, std::int64_t{kSide}));
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), step = static_cast<int>(blockDim.y);
  for (int r = y; r < rows; r += step)
    for (int c = x; c < columns; c += kWarp) tile[r * kPitch + c] = from[r * copy.from_stride + c];
  __syncthreads();
  for (int c = y; c < columns; c += step)
    for (int r = x; r < rows; r += kWarp)
      to[c * copy.to_stride + r] = static_cast<Word>(static_cast<Kept>(tile[r * kPitch + c]));
}

// The dimensions of a transposition, or none where the copy is not one or too narrow for tiles.
struct TransposedDims {
  int from = -1, to = -1;
  bool found = false;
};
TransposedDims transposed_dims(const CopyPlan& plan) {
  constexpr std::int64_t kNarrow = 8;
  TransposedDims dims;
  for (int d = 0; d < plan.shape.size(); ++d) {
    if (plan.from[d] == 1) dims.from = d;
    if (plan.to[d] == 1) dims.to = d;
  }
  dims.found = dims.from >= 0 && dims.to >= 0 && dims.from != dims.to && plan.shape[dims.from] >= kNarrow &&
               plan.shape[dims.to] >= kNarrow;
  return dims;
}

void copy_transposed(const Tensor& from, const Tensor& to, const CopyPlan& plan, const TransposedDims& dims) {
  TransposedCopy copy{
      from.raw(), to.raw(), plan.shape[dims.from], plan.shape[dims.to], plan.from[dims.to], plan.to[dims.from], {},
      {},         {}};
  Dims outer;
  for (int d = 0; d < plan.shape.size(); ++d) {
    if (d == dims.from || d == dims.to) continue;
    copy.from_outer[outer.size()] = plan.from[d];
    copy.to_outer[outer.size()] = plan.to[d];
    outer.push_back(plan.shape[d]);
  }
  if (outer.empty()) outer.push_back(1);
  copy.outer = Shape(outer);
  visit_word(size_of(to.dtype()), [&](auto tag) {
    using Word = typename decltype(tag)::type;
    const std::int64_t tiles =
        ceil_div(copy.from_extent, kTileSide<Word>) * ceil_div(copy.to_extent, kTileSide<Word>) * product(outer);
    launch("copy", copy_transposed_kernel<Word>, {static_cast<unsigned>(tiles), dim3(kWarp, 8)}, stream_of(to), copy);
  });
}

void copy_same(const Tensor& from, const Tensor& to) {
  CopyPlan plan(from, to);
  if (plan.shape.size() == 1 && plan.from[0] == 1 && plan.to[0] == 1) {
    const Context& context = to.context();
    return context.api().copy(to.raw(), from.raw(), to.bytes(), context.stream().native());
  }
  if (const TransposedDims dims = transposed_dims(plan); dims.found) return copy_transposed(from, to, plan, dims);
  visit_word(widen_words(plan, from.raw(), to.raw(), size_of(to.dtype())), [&](auto tag) {
    const WordCopy copy(from.raw(), to.raw(), plan);
    const auto blocks = static_cast<unsigned>(ceil_div(copy.count, kThreads * 4));
    launch("copy", copy_words_kernel<typename decltype(tag)::type>, {blocks, kThreads}, stream_of(to), copy);
  });
}

struct Same {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};

void copy(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  const DType a = from.dtype(), b = to.dtype();
  if (a == b) return copy_same(from, to);
  if (!is_floating(a) && !is_floating(b)) return run_elementwise<std::int64_t>("copy", to, Same{}, from);
  // Integers may need more than the 24 bits of an fp32.
  const bool wide = !is_floating(a) || !is_floating(b) || a == DType::f64 || b == DType::f64;
  if (wide) run_elementwise<double>("copy", to, Same{}, from);
  else run_elementwise<float>("copy", to, Same{}, from);
}

template <class C>
struct Constant {
  C value;
  __device__ C operator()(std::int64_t) const { return value; }
};

void fill(const Tensor& out, double value) {
  if (out.numel() == 0) return;
  if (value == 0 && !std::signbit(value) && Layout(out).dense()) {
    const Context& context = out.context();
    return context.api().set_bytes(out.raw(), 0, out.bytes(), context.stream().native());
  }
  visit_compute_type(out.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_elementwise<C>("fill", out, Constant<C>{static_cast<C>(value)});
  });
}

struct Choose {
  template <class C>
  __device__ C operator()(C condition, C a, C b) const {
    return condition != C(0) ? a : b;
  }
};

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  visit_compute_type(out.dtype(), [&](auto tag) {
    run_elementwise<typename decltype(tag)::type>("where", out, Choose{}, condition, a, b);
  });
}

void accumulate(const Tensor& from, const Tensor& into) {
  if (is_floating(into.dtype()) && !is_floating(from.dtype()))
    return accumulate(kernels::cast(from, into.dtype()), into);
  const DType wider = from.dtype() == DType::f64 ? DType::f64 : into.dtype();
  visit_compute_type(
      wider, [&](auto tag) { run_elementwise<typename decltype(tag)::type>("accumulate", into, Sum{}, into, from); });
}

template <class C>
struct Times {
  C factor;
  __device__ C operator()(C x) const { return x * factor; }
};

void scale(const Tensor& x, double factor) {
  visit_compute_type(x.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_elementwise<C>("scale", x, Times<C>{static_cast<C>(factor)}, x);
  });
}

// A quotient whose parts are on the device.
struct Quotient {
  const void* factor;
  bool wide;                    // the factor is f64, else f32
  const std::int64_t* divisor;  // null: 1

  __device__ double value() const {
    const std::int64_t by = divisor == nullptr ? 1 : *divisor;
    const double above = wide ? *static_cast<const double*>(factor) : *static_cast<const float*>(factor);
    return by == 0 ? 0 : above / static_cast<double>(by);
  }
};

// A quotient of 1 leaves nothing to do but to begin the blocks. So there are only as many as keep a large GPU evenly
// busy where there is something to do, and each goes on from one part of x to the next.
constexpr std::int64_t kMostScaleBlocks = 4096;

template <class C>
__global__ void scale_by_kernel(Operands<1> operands, Quotient by) {
  const double quotient = by.value();
  if (quotient == 1) return;
  const Times<C> times{static_cast<C>(quotient)};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kElementwiseBlock;
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kElementwiseBlock; begin < operands.count;
       begin += stride)
    compute_elements<C>(operands, begin, times);
}

void scale_by(const Tensor& x, const Tensor& factor, const Tensor& divisor) {
  if (x.numel() == 0) return;
  const Quotient by{factor.raw(), factor.dtype() == DType::f64,
                    divisor.defined() ? divisor.data<std::int64_t>() : nullptr};
  auto* const kernel = x.dtype() == DType::f64 ? scale_by_kernel<double> : scale_by_kernel<float>;
  launch("scale_by", kernel, elementwise_shape(x.numel(), kMostScaleBlocks), stream_of(x), Operands<1>(x, x), by);
}

struct CountFrom {
  std::int64_t first;
  __device__ std::int64_t operator()(std::int64_t i) const { return first + i; }
};

void arange(const Tensor& out, std::int64_t first) { run_elementwise<std::int64_t>("arange", out, CountFrom{first}); }

}  // namespace

void add_copy(KernelTable& table) {
  table.copy = copy;
  table.fill = fill;
  table.where = where;
  table.accumulate = accumulate;
  table.scale = scale;
  table.scale_by = scale_by;
  table.arange = arange;
}

}  // namespace keel::cuda
