#pragma once
// What happens to a tracker as JSON objects, one a line: what `jsonl` writes and `command` hands to its program.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "keel/runtime/json.h"
#include "keel/trainer/tracker.h"

namespace keel {

// A value of a configuration, written as YAML: true, false and numbers as such, everything else as text.
Json json_of_setting(const std::string& yaml);

// Each with the newline behind it. Texts that are not UTF-8 are repaired.
std::string start_line(const RunDescription& run);
std::string record_line(std::int64_t step, double seconds, std::span<const Logged> values);
std::string text_line(std::string_view name, std::string_view text);
std::string artifact_line(std::string_view name, const std::string& path);
std::string end_line(RunStatus status);

}  // namespace keel
