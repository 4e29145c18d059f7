// Moving numbers: copies between any layouts and dtypes, fill, where, and in-place sums and products.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/blocks.h"
#include "keel/kernels/cpu/shuffle.h"
#include "keel/kernels/layout.h"

namespace keel::cpu {
namespace {

// Rows along the last dimension, whichever strides they have.
template <class T>
void copy_rows(const Context& context, const CopyPlan& plan, const T* from, T* to) {
  const Layout from_layout{plan.shape, plan.from}, to_layout{plan.shape, plan.to};
  const std::int64_t from_stride = plan.from.back(), to_stride = plan.to.back();
  parallel_for(context, product(plan.shape), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    RowCursor source(from_layout, begin), target(to_layout, begin);
    while (begin < end) {
      const std::int64_t count = std::min({source.left(), target.left(), end - begin});
      const T* in = from + source.offset();
      T* out = to + target.offset();
      if (from_stride == 1 && to_stride == 1) {
        std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < count; ++i) out[i * to_stride] = in[i * from_stride];
      }
      begin += count;
      if (begin == end) break;
      source.advance(count);
      target.advance(count);
    }
  });
}

// 16 bytes of any element type that an element's size allows to turn by shuffles.
template <class T>
using Words [[gnu::vector_size(16)]] =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// The elements of the lower or the upper halves of a and b in turn: a0 b0 a1 b1 ...
template <bool upper, class V>
V interleave(V a, V b) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    constexpr int count = sizeof...(I);
    return shuffled<(I / 2 + I % 2 * count + (upper ? count / 2 : 0))...>(a, b);
  }
  (std::make_integer_sequence<int, sizeof(V) / sizeof(V{}[0])>{});
}

// A square of 16 bytes a side: to[r * to_stride + c] = from[r + c * from_stride]. Each round interleaves
// row i with the row half the square further, which moves one bit of the row's number into the column's.
template <class T>
void transpose_square(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  constexpr int kSide = 16 / sizeof(T);
  Words<T> rows[kSide], turned[kSide];
  for (int i = 0; i < kSide; ++i) std::memcpy(&rows[i], from + i * from_stride, 16);
  for (int round = 1; round < kSide; round *= 2) {
    for (int i = 0; i < kSide / 2; ++i) {
      turned[2 * i] = interleave<false>(rows[i], rows[i + kSide / 2]);
      turned[2 * i + 1] = interleave<true>(rows[i], rows[i + kSide / 2]);
    }
    for (int i = 0; i < kSide; ++i) rows[i] = turned[i];
  }
  for (int i = 0; i < kSide; ++i) std::memcpy(to + i * to_stride, &rows[i], 16);
}

// to[r * to_stride + c] = from[r + c * from_stride] for r < rows, c < columns, at most kTileSide each. Through a
// dense tile: strides that are powers of two would put all of a tile's lines into one set of the cache.
template <class T>
inline constexpr std::int64_t kTileSide = 256 / sizeof(T);

template <class T>
void transpose_tile(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, T* to,
                    std::int64_t to_stride) {
  constexpr std::int64_t kSide = kTileSide<T>, kSquare = 16 / sizeof(T);
  alignas(64) T tile[kSide * kSide];
  const std::int64_t square_rows = rows / kSquare * kSquare, square_columns = columns / kSquare * kSquare;
  for (std::int64_t c = 0; c < square_columns; c += kSquare)
    for (std::int64_t r = 0; r < square_rows; r += kSquare)
      transpose_square(from + r + c * from_stride, from_stride, tile + r * kSide + c, kSide);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = c < square_columns ? square_rows : 0; r < rows; ++r)
      tile[r * kSide + c] = from[r + c * from_stride];
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, tile + r * kSide, static_cast<std::size_t>(columns) * sizeof(T));
}

// The source is dense along dimension `along`, the target along the last one.
template <class T>
void copy_transposed(const Context& context, const CopyPlan& plan, int along, const T* from, T* to) {
  constexpr std::int64_t kSide = kTileSide<T>;
  const int last = plan.shape.size() - 1;
  Layout from_outer, to_outer;
  for (int i = 0; i < last; ++i) {
    if (i == along) continue;
    from_outer.shape.push_back(plan.shape[i]);
    from_outer.strides.push_back(plan.from[i]);
    to_outer.strides.push_back(plan.to[i]);
  }
  if (from_outer.shape.empty()) from_outer = Layout(Dims{1}, Dims{0}), to_outer = from_outer;
  to_outer.shape = from_outer.shape;
  const std::int64_t rows = plan.shape[along], columns = plan.shape[last];
  const std::int64_t tiles_down = (rows + kSide - 1) / kSide, tiles_across = (columns + kSide - 1) / kSide;
  const std::int64_t from_stride = plan.from[last], to_stride = plan.to[along];
  parallel_for(context, product(from_outer.shape) * tiles_down * tiles_across,
               std::max<std::int64_t>(1, kElementGrain / (kSide * kSide)), [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t tile = begin; tile < end; ++tile) {
                   const std::int64_t outer = tile / (tiles_down * tiles_across);
                   const std::int64_t r = tile % tiles_down * kSide;
                   const std::int64_t c = tile / tiles_down % tiles_across * kSide;
                   transpose_tile(from + RowCursor(from_outer, outer).offset() + r + c * from_stride, from_stride,
                                  std::min(kSide, rows - r), std::min(kSide, columns - c),
                                  to + RowCursor(to_outer, outer).offset() + r * to_stride + c, to_stride);
                 }
               });
}

template <class T>
void copy_same(const Tensor& from, const Tensor& to) {
  const CopyPlan plan(from, to);
  const T* source = from.data<T>();
  T* target = to.data<T>();
  int along = -1;
  if (plan.to.back() == 1 && plan.from.back() > 1)
    for (int i = 0; i + 1 < plan.shape.size(); ++i)
      if (plan.from[i] == 1) along = i;
  if (along >= 0) copy_transposed(to.context(), plan, along, source, target);
  else copy_rows(to.context(), plan, source, target);
}

// Through C: straight from the source's type to the target's where one of them is C.
template <class C>
void convert(const Tensor& from, const Tensor& to) {
  const Reader<C> reader(from);
  const Writer<C> writer(to);
  parallel_for(to.context(), to.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    constexpr int kLength = block_length<C>();
    alignas(64) C buffer[kLength];
    for (std::int64_t at = begin; at < end; at += kLength) {
      const int n = static_cast<int>(std::min<std::int64_t>(kLength, end - at));
      writer.store(at, n, reader(at, n, writer.target(at, buffer)));
    }
  });
}

void copy(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  const DType a = from.dtype(), b = to.dtype();
  if (a == b) return visit_dtype(a, [&](auto tag) { copy_same<typename decltype(tag)::type>(from, to); });
  if (!is_floating(a) && !is_floating(b)) return convert<std::int64_t>(from, to);
  // Integers may need more than the 24 bits of an fp32.
  if (!is_floating(a) || !is_floating(b) || a == DType::f64 || b == DType::f64) return convert<double>(from, to);
  convert<float>(from, to);
}

template <class C>
void fill_block(C* out, const C* const*, int n, double value) {
  std::fill_n(out, n, static_cast<C>(value));
}

void fill(const Tensor& out, double value) {
  visit_compute_type(out.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_blocks<C, 0>(out, {}, fill_block<C>, value);
  });
}

template <class C>
void where_block(C* out, const C* const* in, int n, double) {
  const C *condition = in[0], *a = in[1], *b = in[2];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = condition[i] != C(0) ? a[i] : b[i];
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  visit_compute_type(out.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_blocks<C, 3>(out, {condition, a, b}, where_block<C>, 0);
  });
}

template <class C>
void add_block(C* out, const C* const* in, int n, double) {
  const C *into = in[0], *from = in[1];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = into[i] + from[i];
}

void accumulate(const Tensor& from, const Tensor& into) {
  const DType wider = from.dtype() == DType::f64 ? DType::f64 : into.dtype();
  visit_compute_type(wider, [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_blocks<C, 2>(into, {into, from}, add_block<C>, 0);
  });
}

template <class C>
void scale_block(C* out, const C* const* in, int n, double factor) {
  const C* x = in[0];
  const C by = static_cast<C>(factor);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = x[i] * by;
}

void scale(const Tensor& x, double factor) {
  visit_compute_type(x.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    run_blocks<C, 1>(x, {x}, scale_block<C>, factor);
  });
}

void scale_by(const Tensor& x, const Tensor& factor, const Tensor& divisor) {
  const std::int64_t by = divisor.defined() ? *divisor.data<std::int64_t>() : 1;
  const double quotient = by == 0 ? 0 : factor.item() / static_cast<double>(by);
  if (quotient != 1) scale(x, quotient);
}

void arange(const Tensor& out, std::int64_t first) {
  std::int64_t* const numbers = out.data<std::int64_t>();
  std::iota(numbers, numbers + out.numel(), first);
}

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

}  // namespace keel::cpu
