#pragma once
// How long a rank waits for the others before it gives up: `keel launch --timeout`, which sets KEEL_TIMEOUT.

#include <chrono>
#include <string>

namespace keel::cli {

constexpr const char* kTimeoutVariable = "KEEL_TIMEOUT";

// From seconds, as in "300" or "0.5"; `name` is what was set, for the Error.
std::chrono::milliseconds parse_timeout(const std::string& text, const std::string& name);

}  // namespace keel::cli
