#pragma once
// What the number types of tensors can hold, read off their own conversions.

#include <string>

#include "keel/runtime/dtype.h"

namespace keel::cli {

// Of a floating type. `gap`: from 1 to the next number; normal numbers have all significant bits.
struct NumberFormat {
  int significant_bits = 0;
  double largest = 0, smallest_normal = 0, smallest = 0, gap = 0;
};
NumberFormat format_of(DType dtype);

// docs/formats.md.
std::string formats_reference();

}  // namespace keel::cli
