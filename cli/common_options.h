#pragma once
// Options that several commands take.

#include <string>

#include "command.h"

namespace keel::cli {

// CONFIG.yaml and KEY=VALUE...
Option configuration(std::string* variable);
Option overrides(Words* variable);

// --threads
Option ranks_as_threads(bool* variable);

}  // namespace keel::cli
