#pragma once
// Checkpoints of keel 0.1.0 (format 2) and of format 3: a state.json with whole-file hashes beside the safetensors
// files.

#include <string>
#include <string_view>

#include "keel/dist/checkpoint/manifest.h"

namespace keel {

inline constexpr std::string_view kOldStateFile = "state.json";

// Reads state.json and the headers of the files that it names. Errors are those of read_manifest().
Manifest read_old_format(const std::string& folder);

}  // namespace keel
