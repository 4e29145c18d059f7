#pragma once
// Rows chosen by index on the device, and their transpose: rows summed by index in a fixed order. Embedding,
// index_select and index_add are both.

#include "keel/runtime/fault.h"
#include "keel/runtime/tensor.h"

namespace keel::cuda {

// to[o, i, :] = from[o, index[i], :]; zeros, and a fault, where the index is out of range. from: (outer, extent, inner)
// with dense rows; index: i32 or i64 (picks); to: (outer, picks, inner), dense. Any dtype.
void copy_rows(const char* name, const Tensor& from, const Tensor& index, const Tensor& to, FaultKind fault);

// to[o, index[i], :] += from[o, i, :] in the order of i, in fp32, rounded once; without `add`, `to` is overwritten, and
// zero where no index points. An index out of range is a fault and adds nothing. from: (outer, picks, inner); to:
// (outer, extent, inner), f32 or from's dtype; all dense.
void add_rows(const char* name, const Tensor& from, const Tensor& index, const Tensor& to, bool add, FaultKind fault);

}  // namespace keel::cuda
