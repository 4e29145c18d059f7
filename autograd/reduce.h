#pragma once
// Differentiable reductions. An empty `dims` means all dimensions.

#include "keel/autograd/record.h"

namespace keel {

Variable sum(const Variable& x, const Dims& dims = {}, bool keep = false);
Variable mean(const Variable& x, const Dims& dims = {}, bool keep = false);
// Where several elements are the largest, they share the gradient equally.
Variable max(const Variable& x, const Dims& dims = {}, bool keep = false);

}  // namespace keel
