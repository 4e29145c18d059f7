#pragma once
// Which device a run computes on.

#include <string_view>

#include "keel/runtime/context.h"

namespace keel {

// "auto" is the first GPU where this build drives one and the machine has one, else the processor; the emulator is
// only used when it is named. Anything else is read by parse_device(). An Error for a device that is not there.
Device choose_device(std::string_view text);

}  // namespace keel
