#pragma once
// The memory of this process, as the kernel counts it.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// Bytes that are in the machine's memory now, shared pages included; 0 where /proc does not say.
std::int64_t resident_bytes();
// Of these, what no file and no other process shares.
std::int64_t own_bytes();
// The most that there were since the process began.
std::int64_t peak_resident_bytes();

}  // namespace keel
