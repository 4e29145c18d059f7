#pragma once
// Adding up what the ranks of a collective sent, in an order that is written down.

#include <span>

#include "keel/runtime/tensor.h"

namespace keel {

enum class CombineOp : unsigned char { sum, maximum, minimum };
std::string_view name_of(CombineOp op);

struct CombineArgs {
  std::span<const Tensor> terms;  // dense, of one dtype and number of elements
  Tensor out;                     // dense, as many elements, the terms' dtype or fp32; may be one of the terms
  CombineOp op = CombineOp::sum;
};

namespace kernels {

// out = terms[0] op terms[1] op ..., element by element from left to right, in fp32 (fp64 and integers in themselves),
// rounded once. A copy where there is one term. NaN wins in a maximum and a minimum.
void combine(const CombineArgs& args);

}  // namespace kernels
}  // namespace keel
