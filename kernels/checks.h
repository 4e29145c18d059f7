#pragma once
// What public kernel functions ask of their tensors, with one wording for every message.

#include <string_view>

#include "keel/runtime/tensor.h"

namespace keel::kernels {

inline void check_defined(std::string_view op, std::string_view role, const Tensor& tensor) {
  KEEL_CHECK(tensor.defined(), op, ": ", role, " is an empty tensor handle");
}

inline void check_floating(std::string_view op, std::string_view role, const Tensor& tensor) {
  check_defined(op, role, tensor);
  KEEL_CHECK(is_floating(tensor.dtype()), op, ": ", role, " must be floating-point, got ", tensor);
}

inline void check_context(std::string_view op, std::string_view role, const Tensor& tensor, const Context& context) {
  check_defined(op, role, tensor);
  KEEL_CHECK(tensor.context() == context, op, ": ", role, " ", tensor,
             " belongs to another context; all tensors of an operation share one");
}

// The tensor has exactly this shape and dtype, in this context.
inline void check_tensor(std::string_view op, std::string_view role, const Tensor& tensor, const Dims& shape,
                         DType dtype, const Context& context) {
  check_context(op, role, tensor, context);
  KEEL_CHECK(tensor.shape() == shape && tensor.dtype() == dtype, op, ": ", role, " must be ", dtype, ' ', shape,
             ", got ", tensor);
}

// For destinations, which cannot be replaced by a dense copy.
inline void check_dense(std::string_view op, std::string_view role, const Tensor& tensor) {
  KEEL_CHECK(tensor.is_contiguous(), op, ": ", role, " ", tensor,
             " is written in place and must be dense, but has strides ", tensor.strides());
}

// A dense tensor of rank 1 or more as (rows, cols): the last dimension, and all others together.
inline Tensor as_rows(std::string_view op, const Tensor& dense) {
  KEEL_CHECK(dense.rank() >= 1, op, ": a tensor with at least one dimension is needed, got ", dense);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < dense.rank(); ++i) rows *= dense.dim(i);
  return dense.view({rows, dense.dim(-1)});
}

}  // namespace keel::kernels
