#pragma once
// Options that several commands take.

#include <string>

#include "command.h"
#include "keel/trainer/config.h"

namespace keel::cli {

// CONFIG.yaml and KEY=VALUE...
Option configuration(std::string* variable);
Option overrides(Words* variable);

// The configuration as those say it. Keys of the file that an override makes meaningless are named on the standard
// error, where `speaks`: one rank of several does.
Config read_configuration(const std::string& file, const Words& changes, bool speaks = true);

// --threads
Option ranks_as_threads(bool* variable);

}  // namespace keel::cli
