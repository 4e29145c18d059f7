#pragma once
// Starting this program itself as the ranks of a group.

#include <string>
#include <vector>

#include "command.h"

namespace keel::cli {

// The command and what was given but for -N, for ranks that this program starts.
std::vector<std::string> words_for_ranks(const std::string& command, const Call& call);

// Runs `keel` with these arguments as so many ranks, and returns their exit code: see `keel launch`.
int launch_keel(int ranks, std::vector<std::string> arguments);

}  // namespace keel::cli
