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

}  // namespace keel
