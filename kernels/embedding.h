#pragma once
// Table look-up and its gradient, summed in a fixed order.

#include "keel/runtime/tensor.h"

namespace keel {

struct EmbeddingArgs {
  Tensor table;  // (vocabulary, width), rows dense
  Tensor ids;    // i32 or i64 (n), dense
  Tensor out;    // (n, width)
};
struct EmbeddingBackwardArgs {
  Tensor grad_output;  // (n, width), dense
  Tensor ids;          // (n)
  Tensor grad_table;   // (vocabulary, width); f32 or grad_output's dtype
  bool add = false;    // add to what grad_table holds; otherwise rows not looked up become zero
};

namespace kernels {

// ids of any shape; out: (ids..., width). A table whose rows are not dense is copied. An id outside the table is an
// Error that names it.
Tensor embedding(const Tensor& table, const Tensor& ids);
// Contributions to one row are added in the order of their positions, in fp32 or wider.
void embedding_backward(const Tensor& grad_output, const Tensor& ids, const Tensor& grad_table, bool add);

}  // namespace kernels
}  // namespace keel
