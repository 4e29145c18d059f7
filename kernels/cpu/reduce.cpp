// Reductions over any dimensions, by trees that depend on the shape alone.
//
// The reduced range of every output is cut into chunks of fixed length, each reduced by one task; the
// partial results are then combined pairwise. Two shapes of task: along the reduced dimension (by rows),
// or across whole rows of neighbouring outputs at once (by columns), whichever memory is dense in.

#include <algorithm>
#include <array>
#include <limits>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/blocks.h"

namespace keel::cpu {
namespace {

struct SumOf {
  template <class C>
  C operator()(C a, C b) const {
    return a + b;
  }
};
struct MaxOf {
  template <class C>
  C operator()(C a, C b) const {
    return Maximum{}.forward(a, b);
  }
};
struct MinOf {
  template <class C>
  C operator()(C a, C b) const {
    return Minimum{}.forward(a, b);
  }
};

constexpr std::int64_t kRowChunk = 16384;    // elements reduced by one task along a row
constexpr std::int64_t kColumnChunk = 64;    // rows reduced by one task across columns
constexpr std::int64_t kColumnBlock = 2048;  // columns of such a task: whole rows where it can, as memory likes them
constexpr std::int64_t kColumnGroup = 32;    // rows of such a task added in line, lest sums drift

struct Split : ReductionLayout {
  Tensor ordered;  // x with the kept dimensions in front

  Split(const Tensor& x, const Dims& dims) : ReductionLayout(x, dims), ordered(x.permute(order)) {}
};

// n >= 1 values: 32 interleaved running values, combined pairwise.
template <class Op, class C>
C reduce_block(const C* x, int n) {
  constexpr int kLanes = 32;
  constexpr Op op;
  if (n < kLanes) {
    C result = x[0];
    for (int i = 1; i < n; ++i) result = op(result, x[i]);
    return result;
  }
  C lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = x[l];
  int i = kLanes;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = op(lanes[l], x[i + l]);
  for (int l = 0; i < n; ++i, ++l) lanes[l] = op(lanes[l], x[i]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] = op(lanes[l], lanes[l + half]);
  return lanes[0];
}

// Neighbours first, so that equal numbers do not round the same way again and again. Overwrites `values`.
template <class Op, class C>
C combine_pairwise(C* values, std::size_t count) {
  for (std::size_t step = 1; step < count; step *= 2)
    for (std::size_t i = 0; i + step < count; i += 2 * step) values[i] = Op{}(values[i], values[i + step]);
  return values[0];
}

// partial: (outputs, chunks)
template <class Op, class C>
void reduce_by_rows(const Split& split, std::int64_t chunks, C* partial) {
  const Reader<C> reader(split.ordered);
  const std::int64_t longest = std::min(split.count, kRowChunk);
  parallel_for(split.ordered.context(), split.outputs * chunks, std::max<std::int64_t>(1, kElementGrain / longest),
               [&](std::int64_t begin, std::int64_t end) {
                 constexpr int kLength = block_length<C>();
                 alignas(64) C buffer[kLength];
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t first = task % chunks * kRowChunk;
                   const std::int64_t last = std::min(split.count, first + kRowChunk);
                   std::array<C, kRowChunk / kLength> values;
                   std::size_t blocks = 0;
                   for (std::int64_t at = first; at < last; at += kLength) {
                     const int n = static_cast<int>(std::min<std::int64_t>(kLength, last - at));
                     const C* block = reader(task / chunks * split.count + at, n, buffer);
                     values[blocks++] = reduce_block<Op>(block, n);
                   }
                   partial[task] = combine_pairwise<Op>(values.data(), blocks);
                 }
               });
}

// acc[j] = op of column j of `rows` rows, each `row` elements from the last; n columns. Row by row, since memory is
// fastest when read in its order.
template <class Op, class T, class C>
void reduce_columns(const T* base, RowCursor& row, std::int64_t rows, int n, C* acc) {
  constexpr Op op;
  for (std::int64_t r = 0; r < rows; ++r, row.advance(1)) {
    const T* const x = base + row.offset();
    if (r == 0)
      for (int j = 0; j < n; ++j) acc[j] = widen<C>(x[j]);
    else
      for (int j = 0; j < n; ++j) acc[j] = op(acc[j], widen<C>(x[j]));
  }
}

// partial: (outer outputs, chunks, columns)
template <class Op, class T, class C>
void reduce_by_columns(const Split& split, std::int64_t chunks, C* partial) {
  const T* x = split.ordered.data<T>();
  const std::int64_t columns = split.kept.shape.back();
  const std::int64_t blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const std::int64_t task_size = std::min(columns, kColumnBlock) * std::min(split.count, kColumnChunk);
  parallel_for(split.ordered.context(), split.outputs / columns * chunks * blocks,
               std::max<std::int64_t>(1, kElementGrain / task_size), [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t outer = task / (chunks * blocks), chunk = task / blocks % chunks;
                   const std::int64_t column = task % blocks * kColumnBlock;
                   const T* base = x + RowCursor(split.kept, outer * columns + column).offset();
                   const std::int64_t first = chunk * kColumnChunk;
                   const std::int64_t rows = std::min(kColumnChunk, split.count - first);
                   const int n = static_cast<int>(std::min(kColumnBlock, columns - column));
                   C* const acc = partial + (outer * chunks + chunk) * columns + column;
                   RowCursor row(split.reduced, first);
                   reduce_columns<Op>(base, row, std::min(kColumnGroup, rows), n, acc);
                   for (std::int64_t r = kColumnGroup; r < rows; r += kColumnGroup) {
                     alignas(64) C group[kColumnBlock];
                     reduce_columns<Op>(base, row, std::min(kColumnGroup, rows - r), n, group);
                     for (int j = 0; j < n; ++j) acc[j] = Op{}(acc[j], group[j]);
                   }
                 }
               });
}

// Combines partial (outer, chunks, columns) pairwise into its chunks 0, a stripe of columns at a time.
template <class Op, class C>
void combine_chunks(const Context& context, std::int64_t outer, std::int64_t chunks, std::int64_t columns, C* partial) {
  constexpr std::int64_t kStripe = 128;
  const std::int64_t stripes = (columns + kStripe - 1) / kStripe, stripe_size = chunks * std::min(columns, kStripe);
  parallel_for(context, outer * stripes, std::max<std::int64_t>(1, kElementGrain / stripe_size),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t column = task % stripes * kStripe;
                   const std::int64_t n = std::min(kStripe, columns - column);
                   C* const first = partial + task / stripes * chunks * columns + column;
                   for (std::int64_t step = 1; step < chunks; step *= 2)
                     for (std::int64_t c = 0; c + step < chunks; c += 2 * step) {
                       C* into = first + c * columns;
                       const C* from = into + step * columns;
                       for (std::int64_t j = 0; j < n; ++j) into[j] = Op{}(into[j], from[j]);
                     }
                 }
               });
}

template <class C>
void divide_block(C* out, const C* const* in, int n, double divisor) {
  const C by = static_cast<C>(divisor);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = in[0][i] / by;
}
template <class C>
void add_block(C* out, const C* const* in, int n, double) {
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = in[0][i] + in[1][i];
}

template <class Op, class C>
void reduce_as(const ReduceArgs& args) {
  const Split split(args.x, args.dims);
  const bool columnwise = split.by_columns();
  const std::int64_t length = columnwise ? kColumnChunk : kRowChunk;
  const std::int64_t chunks = (split.count + length - 1) / length;
  const std::int64_t columns = columnwise ? split.kept.shape.back() : 1;
  const std::int64_t outer = split.outputs / columns;
  const Context& context = args.x.context();

  const bool direct =
      chunks == 1 && args.out.dtype() == dtype_of<C>() && !args.add && args.reduction != Reduction::mean;
  const Tensor out = args.out.view({outer, columns});
  const Tensor partial =
      direct ? out.unsqueeze(1) : empty(context, {outer, chunks, columns}, dtype_of<C>(), Purpose::workspace);
  C* values = partial.template data<C>();
  if (columnwise) {
    visit_dtype(args.x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      // Each dtype meets only its own compute type here.
      if constexpr (std::is_same_v<C, std::int64_t> ? std::is_integral_v<T> : std::is_same_v<C, Accumulator<T>>)
        reduce_by_columns<Op, T>(split, chunks, values);
    });
  } else {
    reduce_by_rows<Op>(split, chunks, values);
  }
  if (chunks > 1) combine_chunks<Op>(context, outer, chunks, columns, values);
  if (direct) return;
  const Tensor result = partial.select(1, 0);
  if (args.reduction == Reduction::mean)
    run_blocks<C, 1>(out, {result}, divide_block<C>, static_cast<double>(split.count));
  else if (args.add) run_blocks<C, 2>(out, {out, result}, add_block<C>, 0);
  else kernel_table(context).copy(result, out);
}

// Position of the first largest value: the largest of each block first, then its place in the block.
template <class C>
void argmax_as(const ReduceArgs& args) {
  const Split split(args.x, args.dims);
  const Reader<C> reader(split.ordered);
  auto* out = args.out.data<std::int64_t>();
  parallel_for(args.x.context(), split.outputs, std::max<std::int64_t>(1, kElementGrain / split.count),
               [&](std::int64_t begin, std::int64_t end) {
                 constexpr int kLength = block_length<C>();
                 alignas(64) C buffer[kLength];
                 for (std::int64_t o = begin; o < end; ++o) {
                   C best{};
                   for (std::int64_t at = 0; at < split.count; at += kLength) {
                     const int n = static_cast<int>(std::min<std::int64_t>(kLength, split.count - at));
                     const C* block = reader(o * split.count + at, n, buffer);
                     const C largest = reduce_block<MaxOf>(block, n);
                     const bool is_nan = largest != largest;
                     if (at > 0 && !(largest > best) && !is_nan) continue;
                     best = largest;
                     int i = 0;
                     while (block[i] != largest && !(is_nan && block[i] != block[i])) ++i;
                     out[o] = at + i;
                     if (is_nan) break;
                   }
                 }
               });
}

void reduce(const ReduceArgs& args) {
  if (args.out.numel() == 0) return;
  if (args.x.numel() == 0) {
    const double nothing = args.reduction == Reduction::mean ? std::numeric_limits<double>::quiet_NaN() : 0;
    if (!args.add) kernel_table(args.out.context()).fill(args.out, nothing);
    return;
  }
  visit_compute_type(args.x.dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    switch (args.reduction) {
      case Reduction::sum:
      case Reduction::mean: return reduce_as<SumOf, C>(args);
      case Reduction::max: return reduce_as<MaxOf, C>(args);
      case Reduction::min: return reduce_as<MinOf, C>(args);
      case Reduction::argmax: return argmax_as<C>(args);
    }
  });
}

}  // namespace

void add_reduce(KernelTable& table) { table.reduce = reduce; }

}  // namespace keel::cpu
