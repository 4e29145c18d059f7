#pragma once
// keel's own callbacks.

#include "keel/trainer/callback.h"

namespace keel {

struct Config;

// Those that a configuration asks for, in the order in which they get events: averages stand first, so that what judges
// evaluations comes after them.
Callbacks own_callbacks(const Config& config);

}  // namespace keel
