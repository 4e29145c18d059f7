#pragma once
// Differentiable changes of shape and choices of elements.

#include <span>

#include "keel/autograd/record.h"

namespace keel {

Variable view(const Variable& x, const Dims& shape);  // copies only where a view cannot exist
Variable transpose(const Variable& x, int a, int b);
Variable permute(const Variable& x, const Dims& order);
Variable slice(const Variable& x, int dim, std::int64_t begin, std::int64_t end);
Variable expand(const Variable& x, const Dims& shape);
Variable concat(std::span<const Variable> parts, int dim);
// Equal parts along `dim`, whose extent must be a multiple of `parts`.
std::vector<Variable> split(const Variable& x, int parts, int dim);
// See kernels/select.h. index: i64.
Variable gather(const Variable& x, int dim, const Tensor& index);
Variable index_select(const Variable& x, int dim, const Tensor& index);

}  // namespace keel
