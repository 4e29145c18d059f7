#pragma once
// Sums, means, extrema and their positions over any set of dimensions, in a fixed order.

#include "keel/runtime/tensor.h"

namespace keel {

enum class Reduction : unsigned char { sum, mean, max, min, argmax };

struct ReduceArgs {
  Reduction reduction;
  Tensor x;          // (..., any strides)
  Dims dims;         // sorted, wrapped, not empty
  Tensor out;        // x's shape with extent 1 at `dims`, dense; any floating dtype, i64 for argmax and integer sums
  bool add = false;  // sum: add to what `out` holds
};

namespace kernels {

// An empty `dims` means all dimensions. `keep` leaves extents of 1. Results have x's dtype, sums of integers
// i64. Sums are accumulated in fp32 (fp64 for f64, i64 for integers) by a fixed tree, so bits do not depend
// on the thread count. Over no elements, sum is 0, mean NaN, and the others are an Error; NaN is the
// largest and the smallest number, as in PyTorch.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor max(const Tensor& x, const Dims& dims = {}, bool keep = false);
Tensor min(const Tensor& x, const Dims& dims = {}, bool keep = false);
// Position of the first largest element along one dimension, i64.
Tensor argmax(const Tensor& x, int dim, bool keep = false);
// Undoes a broadcast: sums x over the dimensions in which `shape` was repeated.
Tensor sum_to(const Tensor& x, const Dims& shape);
// sum over all rows of a matrix (rows, cols) -> (cols), the bias gradient. When `into` (dense) is defined,
// the result is written there (or added, with `add`), in into's dtype.
Tensor sum_rows(const Tensor& x, const Tensor& into = {}, bool add = false);

}  // namespace kernels
}  // namespace keel
