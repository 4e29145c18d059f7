#pragma once
// Starting this program itself as the ranks of a group.

#include <string>
#include <vector>

namespace keel::cli {

// Runs `keel` with these arguments as so many ranks, and returns their exit code: see `keel launch`.
int launch_keel(int ranks, std::vector<std::string> arguments);

// -N=8 arrives as "=8".
std::string without_equals(std::string text);

}  // namespace keel::cli
