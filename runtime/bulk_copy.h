#pragma once
// Copies of much memory that nobody reads soon.

#include <cstddef>
#include <span>

#include "keel/runtime/language.h"

namespace keel {

// Copies `from` to `to`, which has as many bytes and does not overlap with it, past the caches: what they held stays
// there, and the target's old bytes are not read, as stores would. Another thread may read `to` after whatever tells it
// that this has returned.
void copy_past_caches(std::span<const std::byte> from, std::byte* to);

}  // namespace keel
