#pragma once
// Which device a run computes on.

#include <string_view>

#include "keel/runtime/context.h"

namespace keel {

// "auto" is a GPU where this build drives one and the machine has one, else the processor; the emulator is only used
// when it is named. Anything else is read by parse_device(). Where no number is named, that of `local_rank` (the place
// among the ranks of this machine) is taken, from the first again when there are fewer devices. An Error for a device
// that is not there.
Device choose_device(std::string_view text, int local_rank = 0);

}  // namespace keel
