#pragma once
// A host's memory as tensors.

#include <memory>

#include "keel/capi/site.h"
#include "keel/runtime/tensor.h"

namespace keel::capi {

// What a keel_array is.
struct Array {
  std::shared_ptr<Site> site;
  Tensor tensor;  // of the context, or of its host
};

// The array in the context's memory and in this dtype; the array itself where it is so already.
Tensor read_array(const Array& array, DType dtype);
// An Error where elements share a place, or might: dimensions must not interleave.
void check_writable(const Array& array);
// Writes a result, of the array's shape, to the host's memory. It has happened on return.
void write_array(const Tensor& result, const Array& array);

}  // namespace keel::capi
