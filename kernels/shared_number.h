#pragma once
// What an optimizer carries from step to step beside the states of its elements.

#include <cstdint>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// A number that every element of a step uses and that is no function of the step alone; or several.
struct SharedNumber {
  std::string_view name;
  double initial;
  std::int64_t count = 1;  // rules have one
};

}  // namespace keel
