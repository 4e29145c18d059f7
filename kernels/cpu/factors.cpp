// Mean squares of a matrix by its rows and columns.

#include "keel/kernels/factors.h"

#include <algorithm>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"
#include "keel/kernels/step_state.h"

namespace keel::cpu {
namespace {

const StepState& state_of(const Tensor& step) { return *reinterpret_cast<const StepState*>(step.data<std::uint8_t>()); }

// A part of a batch of matrices: elements [begin, end) of all.
template <class T>
struct Part {
  const T* numbers;
  std::int64_t begin, end;
  Accumulator<T> scale;

  // Adds the squares of a row, counted over the batch, to the columns' sums, and returns their sum.
  double add_row(std::int64_t row, std::int64_t columns, double* by_column) const {
    constexpr std::int64_t kBlock = 1024;
    double squares[kBlock], sum = 0;
    const std::int64_t first = std::clamp<std::int64_t>(begin - row * columns, 0, columns);
    const std::int64_t last = std::clamp<std::int64_t>(end - row * columns, 0, columns);
    for (std::int64_t at = first; at < last; at += kBlock) {
      const std::int64_t block = std::min(kBlock, last - at);
      const T* const from = numbers + (row * columns + at - begin);
      for (std::int64_t j = 0; j < block; ++j) {
        const auto g = static_cast<double>(widen(from[j]) * scale);
        squares[j] = g * g;
      }
      for (std::int64_t j = 0; j < block; ++j) by_column[at + j] += squares[j];
      sum += row_sum(squares, block);
    }
    return sum;
  }
};

// The sums of one matrix, whose first row is counted over the batch. Few chunks, each of which needs all columns.
template <class T>
void sum_matrix(const Context& context, const Part<T>& part, std::int64_t first_row, const Factored& shape,
                double* sums) {
  constexpr std::int64_t kChunks = 16;
  const std::int64_t rows = shape.rows, columns = shape.columns;
  const std::int64_t grain = std::max(row_grain(columns), (rows + kChunks - 1) / kChunks);
  const std::int64_t chunks = (rows + grain - 1) / grain;
  const Workspace<double> partials(context, chunks * columns);
  parallel_for(context, rows, grain, [&](std::int64_t from, std::int64_t to) {
    double* const by_column = partials.data() + from / grain * columns;
    std::fill_n(by_column, columns, 0.0);
    for (std::int64_t row = from; row < to; ++row) sums[row] = part.add_row(first_row + row, columns, by_column);
  });
  std::fill_n(sums + rows, columns, 0.0);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    for (std::int64_t j = 0; j < columns; ++j) sums[rows + j] += partials.data()[chunk * columns + j];
}

void sum_factors(const Tensor& gradient, std::int64_t begin, const Factored& shape, const Tensor& step,
                 const Tensor& sums) {
  const StepState& state = state_of(step);
  if (state.taken == 0) return;
  visit_floating(gradient.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Part<T> part{gradient.data<T>(), begin, begin + gradient.numel(),
                       static_cast<Accumulator<T>>(rules::gradient_factor(state, false))};
    for (std::int64_t matrix = 0; matrix < shape.batch; ++matrix)
      sum_matrix(gradient.context(), part, matrix * shape.rows, shape,
                 sums.data<double>() + matrix * (shape.rows + shape.columns));
  });
}

void settle_factors(const SettleArgs& args) {
  const StepState& state = state_of(args.step);
  if (state.taken == 0) return;
  const Factored& shape = args.shape;
  visit_floating(args.rows.dtype(), [&](auto tag) {
    using A = Accumulator<typename decltype(tag)::type>;
    const rules::Settling settling(args.settings, state);
    for (std::int64_t matrix = 0; matrix < shape.batch; ++matrix) {
      double* const sums = args.sums.data<double>() + matrix * (shape.rows + shape.columns);
      A* const rows = args.rows.data<A>() + matrix * shape.rows;
      A* const columns = args.columns.data<A>() + matrix * shape.columns;
      for (std::int64_t i = 0; i < shape.rows; ++i) sums[i] = settling(rows[i], sums[i], shape.columns);
      for (std::int64_t j = 0; j < shape.columns; ++j)
        sums[shape.rows + j] = settling(columns[j], sums[shape.rows + j], shape.rows);
      const double mean = row_sum(sums, shape.rows) / static_cast<double>(shape.rows);
      for (std::int64_t i = 0; i < shape.rows; ++i) sums[i] /= mean;
    }
  });
}

void expand_factors(const Tensor& factors, const Factored& shape, std::int64_t begin, const Tensor& root) {
  const std::int64_t columns = shape.columns, end = begin + root.numel();
  const std::int64_t first_row = begin / columns, last_row = (end + columns - 1) / columns;
  visit_floating(root.dtype(), [&](auto tag) {
    using A = Accumulator<typename decltype(tag)::type>;
    A* const out = root.data<A>();
    parallel_for(root.context(), last_row - first_row, row_grain(columns), [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t row = first_row + from; row < first_row + to; ++row) {
        const double* const matrix = factors.data<double>() + row / shape.rows * (shape.rows + columns);
        const double by_row = matrix[row % shape.rows], *const by_column = matrix + shape.rows;
        const std::int64_t first = std::clamp<std::int64_t>(begin - row * columns, 0, columns);
        const std::int64_t last = std::clamp<std::int64_t>(end - row * columns, 0, columns);
        for (std::int64_t j = first; j < last; ++j)
          out[row * columns + j - begin] = rules::root_of_factors<A>(by_row, by_column[j]);
      }
    });
  });
}

}  // namespace

void add_factors(KernelTable& table) {
  table.sum_factors = sum_factors;
  table.settle_factors = settle_factors;
  table.expand_factors = expand_factors;
}

}  // namespace keel::cpu
