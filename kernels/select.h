#pragma once
// Choosing elements: gather, index select, top-k.

#include "keel/runtime/tensor.h"

namespace keel {

struct GatherArgs {
  Tensor x;      // dense, viewed as (outer, extent, inner)
  Tensor index;  // i64, dense, viewed as (outer, picks, inner)
  Tensor out;    // shaped like index
};
struct IndexSelectArgs {
  Tensor x;      // (outer, extent, inner), dense; for index_add: the target
  Tensor index;  // i64 (picks)
  Tensor out;    // (outer, picks, inner), dense; for index_add: the source
};
struct TopKArgs {
  Tensor x;        // (rows, cols), dense
  Tensor values;   // (rows, k), descending
  Tensor indices;  // i64 (rows, k); ties go to the smaller index
};

namespace kernels {

// out[..., i, ...] = x[..., index[..., i, ...], ...] along `dim`; index: i64 with x's shape except at `dim`.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// Rows (or columns, ...) `index` of x along `dim`; index: i64 (picks), every entry in range or an Error.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// target[..., index[i], ...] += source[..., i, ...], in the order of i. Target must be dense.
void index_add(const Tensor& target, int dim, const Tensor& index, const Tensor& source);

struct TopK {
  Tensor values, indices;
};
// The k largest of each row of x: (..., cols). NaN counts as the largest, as in PyTorch.
TopK top_k(const Tensor& x, std::int64_t k);

}  // namespace kernels
}  // namespace keel
