#pragma once

#include "keel/runtime/language.h"

namespace keel {

// What becomes of a file's empty lines. Those at its end are always left out.
enum class EmptyLines : unsigned char {
  left_out,
  refused,  // an Error names the first that others stand behind: what answers lines would answer others than it seems
};

}  // namespace keel
