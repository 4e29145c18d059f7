#pragma once
// Changes of memory in a window of steps, as a file that `keel show` reads.

#include <cstdint>
#include <span>

#include "keel/runtime/json.h"
#include "keel/runtime/memory_log.h"

namespace keel {

// {"format": "keel memory", "version": 1, "began": 2, "purposes": [...], "ranks": [{"rank": 0, "changes": [[time,
// bytes, purpose, block], ...]}, ...], "dropped": 0}, on one line. `began`: ranks with which the session began. Changes
// are in the order in which they happened. Times are microseconds from `start` on, the beginning of the window's trace;
// a purpose is its place in the list. Each block that comes has a number of its own, from 1 on, and goes under the
// same. Block 0 is what was there before, or memory of others.
Json memory_trace(std::span<const MemoryChange> changes, int began, std::int64_t start, std::int64_t dropped);

}  // namespace keel
