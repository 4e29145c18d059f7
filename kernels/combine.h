#pragma once
// Adding up what the ranks of a collective sent, in an order that is written down.

#include <span>

#include "keel/runtime/tensor.h"

namespace keel {

enum class CombineOp : unsigned char { sum, maximum, minimum, product, mean, pairwise_sum };
inline constexpr int kCombineOps = 6;
std::string_view name_of(CombineOp op);

struct CombineArgs {
  std::span<const Tensor> terms;  // dense, of one dtype and number of elements
  Tensor out;                     // dense, as many elements, the terms' dtype or fp32; may be one of the terms
  CombineOp op = CombineOp::sum;
  std::int64_t divisor = 0;  // of the sum, for a mean; 0: the number of terms
};

namespace kernels {

// out = terms[0] op terms[1] op ..., element by element from left to right, in fp32 (fp64 and integers in themselves),
// rounded once. A copy where there is one term. NaN wins in a maximum and a minimum. Products of integers are those
// modulo 2^bits. A mean is the sum, divided once before it is rounded; integers are added in 64 bits for it, and the
// quotient is rounded towards zero. A pairwise sum is added along a balanced binary tree: neighbours, then neighbours
// of those sums, where one without a partner goes up as it is; so the sums over 2^k ranks each are partial sums of it.
void combine(const CombineArgs& args);

}  // namespace kernels
}  // namespace keel
