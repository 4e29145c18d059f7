#include "keel/kernels/layout.h"

namespace keel {

Layout::Layout(const Dims& full_shape, const Dims& full_strides) {
  for (int i = 0; i < full_shape.size(); ++i) {
    if (full_shape[i] == 1) continue;
    const int last = shape.size() - 1;
    if (last >= 0 && strides[last] == full_shape[i] * full_strides[i]) {
      shape[last] *= full_shape[i];
      strides[last] = full_strides[i];
    } else {
      shape.push_back(full_shape[i]);
      strides.push_back(full_strides[i]);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    strides.push_back(1);
  }
}

CopyPlan::CopyPlan(const Tensor& from_tensor, const Tensor& to_tensor) {
  for (int i = 0; i < to_tensor.rank(); ++i) {
    const std::int64_t extent = to_tensor.shape()[i];
    if (extent == 1) continue;
    const std::int64_t from_stride = from_tensor.strides()[i], to_stride = to_tensor.strides()[i];
    const int last = shape.size() - 1;
    if (last >= 0 && from[last] == extent * from_stride && to[last] == extent * to_stride) {
      shape[last] *= extent;
      from[last] = from_stride;
      to[last] = to_stride;
    } else {
      shape.push_back(extent);
      from.push_back(from_stride);
      to.push_back(to_stride);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    from.push_back(1);
    to.push_back(1);
  }
}

ReductionLayout::ReductionLayout(const Tensor& x, const Dims& dims) {
  Dims kept_shape, kept_strides, reduced_shape, reduced_strides;
  for (int i = 0, next = 0; i < x.rank(); ++i) {
    if (next < dims.size() && dims[next] == i) {
      ++next;
      continue;
    }
    order.push_back(i);
    kept_shape.push_back(x.shape()[i]);
    kept_strides.push_back(x.strides()[i]);
  }
  for (const std::int64_t dim : dims) {
    order.push_back(dim);
    reduced_shape.push_back(x.shape()[static_cast<int>(dim)]);
    reduced_strides.push_back(x.strides()[static_cast<int>(dim)]);
  }
  kept = Layout(kept_shape, kept_strides);
  reduced = Layout(reduced_shape, reduced_strides);
  outputs = product(kept_shape);
  count = product(reduced_shape);
}

bool ReductionLayout::by_columns() const {
  constexpr std::int64_t kFewColumns = 16;
  return kept.strides.back() == 1 && kept.shape.back() >= kFewColumns && reduced.strides.back() != 1;
}

}  // namespace keel
