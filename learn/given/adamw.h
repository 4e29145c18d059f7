#pragma once
// What the exercise adamw_bf16 is given.

#include <cstdint>

#include "learn/given/row.h"

namespace learn {

struct AdamW {
  float rate = 1e-3F;
  float beta1 = 0.9F, beta2 = 0.999F;
  float epsilon = 1e-8F;
  float decay = 0;
};

// One parameter tensor: numbers of the same index belong together.
struct Parameters {
  Row<std::uint16_t> weight;  // bf16, what the model computes with
  Out master;                 // the same in fp32
  Out m, v;                   // moving averages of the gradient and of its square, 0 before the first step
};

}  // namespace learn
