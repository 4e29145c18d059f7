#pragma once
// Differentiable table look-up.

#include "keel/autograd/record.h"

namespace keel {

// table: (vocabulary, width); ids: i32 or i64, any shape; out: (ids..., width). Only the table has a gradient: of
// all its rows, or where it is a leaf that is `sparse`, of those that were looked up (keel/autograd/row_gradient.h).
Variable embedding(const Variable& table, const Tensor& ids);

}  // namespace keel
