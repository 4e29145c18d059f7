#include <cstring>
#include <numeric>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/indices.h"

namespace keel::cpu {
namespace {

void gather(const GatherArgs& args) {
  const std::int64_t extent = args.x.dim(1), picks = args.index.dim(1), inner = args.x.dim(2);
  const std::int64_t* const index = args.index.data<std::int64_t>();
  check_indices("gather: index", index, args.index.numel(), extent);
  visit_dtype(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = args.x.data<T>();
    T* const out = args.out.data<T>();
    const std::int64_t lines = args.index.dim(0) * picks;  // of `inner` elements
    parallel_for(args.x.context(), lines, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const T* const from = x + line / picks * extent * inner;
        for (std::int64_t i = 0; i < inner; ++i) {
          const std::int64_t at = line * inner + i;
          out[at] = from[index[at] * inner + i];
        }
      }
    });
  });
}

void index_select(const IndexSelectArgs& args) {
  const std::int64_t extent = args.x.dim(1), picks = args.index.numel(), inner = args.x.dim(2);
  const std::int64_t* const index = args.index.data<std::int64_t>();
  check_indices("index_select: index", index, picks, extent);
  if (args.out.numel() == 0) return;
  const std::size_t line_bytes = static_cast<std::size_t>(inner) * size_of(args.x.dtype());
  const std::byte* const x = args.x.raw();
  std::byte* const out = args.out.raw();
  parallel_for(args.x.context(), args.x.dim(0) * picks, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t from = line / picks * extent + index[line % picks];
      std::memcpy(out + static_cast<std::size_t>(line) * line_bytes, x + static_cast<std::size_t>(from) * line_bytes,
                  line_bytes);
    }
  });
}

// The sum of each target line runs in its accumulator over all its sources, and is rounded once.
void index_add(const IndexSelectArgs& args) {
  const std::int64_t extent = args.x.dim(1), picks = args.index.numel(), inner = args.x.dim(2);
  const std::int64_t* const index = args.index.data<std::int64_t>();
  check_indices("index_add: index", index, picks, extent);
  const Context& context = args.x.context();
  const PositionsByIndex positions(context, index, picks, extent);
  visit_dtype(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    T* const target = args.x.data<T>();
    const T* const source = args.out.data<T>();
    parallel_for(context, args.x.dim(0) * extent, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
      const Workspace<A> wide(context, wide_count<T>(inner));
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t outer = line / extent, row = line % extent;
        if (positions.begin(row) == positions.end(row)) continue;
        T* const to = target + line * inner;
        A* const sum = staged_row(to, wide.data());
        widen_row(to, inner, wide.data());
        for (const std::int64_t* position = positions.begin(row); position != positions.end(row); ++position) {
          const T* const from = source + (outer * picks + *position) * inner;
          for (std::int64_t i = 0; i < inner; ++i) sum[i] = static_cast<A>(sum[i] + widen(from[i]));
        }
        store_row(sum, inner, to);
      }
    });
  });
}

// Whether element a of the row comes before element b: NaN first, then the larger, then the earlier.
template <class A>
bool comes_before(const A* row, std::int64_t a, std::int64_t b) {
  const A x = row[a], y = row[b];
  const bool x_nan = x != x, y_nan = y != y;
  if (x_nan != y_nan) return x_nan;
  if (!x_nan && x != y) return x > y;
  return a < b;
}

void top_k(const TopKArgs& args) {
  const std::int64_t rows = args.x.dim(0), cols = args.x.dim(1), k = args.values.dim(1);
  const Context& context = args.x.context();
  std::int64_t* const indices = args.indices.data<std::int64_t>();
  visit_dtype(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    const T* const x = args.x.data<T>();
    T* const values = args.values.data<T>();
    parallel_for(context, rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
      const Workspace<A> wide(context, wide_count<T>(cols));
      const Workspace<std::int64_t> order(context, cols);
      std::int64_t* const first = order.data();
      for (std::int64_t r = begin; r < end; ++r) {
        const A* const row = widen_row(x + r * cols, cols, wide.data());
        std::iota(first, first + cols, std::int64_t{0});
        std::partial_sort(first, first + k, first + cols,
                          [row](std::int64_t a, std::int64_t b) { return comes_before(row, a, b); });
        std::copy(first, first + k, indices + r * k);
        for (std::int64_t i = 0; i < k; ++i) values[r * k + i] = x[r * cols + first[i]];
      }
    });
  });
}

}  // namespace

void add_select(KernelTable& table) {
  table.gather = gather;
  table.index_select = index_select;
  table.index_add = index_add;
  table.top_k = top_k;
}

}  // namespace keel::cpu
