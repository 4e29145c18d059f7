#pragma once
// The keys of a program without tasks of its own.

#include "keel/trainer/config_keys.h"

namespace keel::testing {

inline const Schema& language_schema() { return keel_keys()->schema("language"); }

}  // namespace keel::testing
