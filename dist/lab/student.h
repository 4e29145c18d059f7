#pragma once
// Student's distribution, for intervals around what was measured a few times.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel::lab {

// The quantile 0.975 of Student's distribution of `freedom` >= 1 degrees of freedom: 95 % lie within it on both sides.
double student_quantile(std::int64_t freedom);

}  // namespace keel::lab
