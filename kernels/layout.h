#pragma once
// How a tensor lies in memory, with everything left out that a loop over its elements need not know.

#include "keel/runtime/tensor.h"

namespace keel {

// Shape and strides with extents of 1 dropped and neighbours joined where one stride continues the other.
// Never of rank 0: a scalar is one row of one element.
struct Layout {
  Dims shape, strides;

  Layout() = default;
  explicit Layout(const Tensor& tensor) : Layout(tensor.shape(), tensor.strides()) {}
  Layout(const Dims& full_shape, const Dims& full_strides);

  // One run of neighbouring elements, so that element i lies at offset i.
  bool dense() const { return shape.size() == 1 && (strides[0] == 1 || shape[0] == 1); }
};

// Two tensors of one shape, with the dimensions left in which they lie differently: extents of 1 dropped, and
// neighbours joined where both are dense across them. Never of rank 0.
struct CopyPlan {
  Dims shape, from, to;  // strides in elements

  CopyPlan(const Tensor& from_tensor, const Tensor& to_tensor);
};

// A tensor as a reduction sees it: outputs times the elements that each is made of. `dims` in ascending order.
struct ReductionLayout {
  Dims order;            // of the tensor's dimensions: those that are kept in front
  Layout kept, reduced;  // row-major numbers of outputs, and of the elements of one
  std::int64_t outputs, count;

  ReductionLayout(const Tensor& x, const Dims& dims);
  // Whether neighbours in memory belong to neighbouring outputs, and to enough of them to be reduced side by side.
  bool by_columns() const;
};

}  // namespace keel
