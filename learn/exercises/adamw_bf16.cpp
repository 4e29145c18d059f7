// adamw_bf16: small updates of weights of 16 bits
//
// A bf16 is the upper half of a float: 1 bit of sign, 8 of exponent, 7 of mantissa. Here it is a
// std::uint16_t with those bits. Below 1 its neighbours are 1/256 apart, and an update of a weight may be
// 1/10000. The nearest bf16 of the sum is then the old weight, in each step, for ever: the model stands
// still. So training keeps a master of each weight in fp32, updates that, and rounds it to the weight that
// the model computes with (Micikevicius et al. 2018, "Mixed precision training").
//
// Write two functions:
//   to_bf16()  rounds a float to the nearest bf16. Where two are as near, it takes the one whose last bit is
//              0. After the largest bf16 comes 2^128, which is infinite. NaN stays NaN.
//   update()   one step of AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization") for
//              each number:
//
//     m = beta1 m + (1 - beta1) gradient            v = beta2 v + (1 - beta2) gradient^2
//     m' = m / (1 - beta1^step)                     v' = v / (1 - beta2^step)
//     master = master - rate (m' / (sqrt(v') + epsilon) + decay master)
//     weight = to_bf16(master)
//
// The first step is number 1. m' and v' correct the bias of averages that begin at 0; m and v are kept
// without it. learn/given/adamw.h has the types. To read afterwards: runtime/half.h and kernels/rules/adam.h,
// which are keel's.

#include <bit>
#include <cmath>

#include "learn/given/adamw.h"

std::uint16_t to_bf16(float x) {
  // std::bit_cast<std::uint32_t>(x) has the bits of x.
  return 0;  // Your code.
}

void update(const learn::AdamW& adamw, int step, learn::In gradient, learn::Parameters parameters) {
  // Your code.
}
