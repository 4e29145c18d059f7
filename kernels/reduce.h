#pragma once
// Sums, means, extrema and their positions over any set of dimensions, in a fixed order.

#include "keel/runtime/tensor.h"

namespace keel {

enum class Reduction : unsigned char { sum, mean, max, min, argmax };

struct ReduceArgs {
  Reduction reduction;
  Tensor x;    // (..., any strides)
  Dims dims;   // sorted, wrapped, not empty
  Tensor out;  // x's shape with extent 1 at `dims`, dense; argmax: i64
};

namespace kernels {

// An empty `dims` means all dimensions. `keep` leaves extents of 1. Sums are accumulated in fp32
// (fp64 for f64, i64 for integers) by a fixed tree, so bits do not depend on the thread count.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor max(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor min(const Tensor& x, const Dims& dims = {}, bool keep = false);
// Position of the first largest element along one dimension, i64.
Tensor argmax(const Tensor& x, int dim, bool keep = false);
// Undoes a broadcast: sums x over the dimensions in which `shape` was repeated.
Tensor sum_to(const Tensor& x, const Dims& shape);
// sum over all rows of a matrix (rows, cols) -> (cols), the bias gradient. When `into` is defined,
// the result is written there (or added, with `add`), in into's dtype.
Tensor sum_rows(const Tensor& x, const Tensor& into = {}, bool add = false);

}  // namespace kernels
}  // namespace keel
