#pragma once
// The choice of `strategy: auto`: the numbers that this processor multiplies fastest.

#include <string>

#include "keel/runtime/context.h"
#include "keel/trainer/config.h"

namespace keel {

struct PrecisionChoice {
  Strategy::Precision precision = Strategy::Precision::fp32;
  std::string reason;  // one line with both speeds
};

// Multiplies matrices of a model of this width in fp32 and in bf16 for about 50 ms. bf16 is chosen where it is at
// least a quarter faster: its rounding should buy something.
PrecisionChoice choose_precision(const Context& context, std::int64_t width);

}  // namespace keel
