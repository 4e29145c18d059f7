#pragma once
// The mean squares of a matrix from those of its rows and columns: what Adafactor keeps instead of a number for each
// element. Shazeer and Stern 2018, algorithm 2:
//   v[i, j] = rows[i] columns[j] / mean(rows), rows and columns being moving averages of their means of g^2 + epsilon.
// A tensor of more than two dimensions is a batch of such matrices.

#include <cstdint>

#include "keel/kernels/rules/adafactor.h"
#include "keel/runtime/tensor.h"

namespace keel {

// A parameter of rank 2 or more as a batch of matrices.
struct Factored {
  std::int64_t batch = 1, rows = 1, columns = 1;

  static Factored of(const Dims& shape);
  // One number for each row and each column: rows and then columns of the first matrix, and so on.
  std::int64_t count() const { return batch * (rows + columns); }
};

struct SettleArgs {
  Factored shape;
  Tensor rows, columns;  // f32 (f64 for f64), batch * rows and batch * columns: the moving averages; written
  Tensor sums;           // of the whole parameter; becomes factors, whose products are v
  Tensor step;
  AdafactorSettings settings;
};
namespace kernels {

// Sums of squares of the gradient, times the step's factor, over rows and columns: f64 (count()), in fp64 and in a
// fixed order. `gradient`: elements [begin, begin + numel) of the parameter, dense; the others count as 0. Nothing
// happens when the step (a state that decide_step() has written) is not taken.
void sum_factors(const Tensor& gradient, std::int64_t begin, const Factored& shape, const Tensor& step,
                 const Tensor& sums);

// Takes the sums into the averages. Nothing happens when the step is not taken.
void settle_factors(const SettleArgs& args);

// The root of v of the elements [begin, begin + root.numel()), from the factors; at least the smallest normal number.
// root: f32 or f64, dense.
void expand_factors(const Tensor& factors, const Factored& shape, std::int64_t begin, const Tensor& root);

}  // namespace kernels
}  // namespace keel
