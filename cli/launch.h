#pragma once
// Starting this program itself as the ranks of a group.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace keel::cli {

// The command and the options that were given but for -N, for ranks that this program starts.
std::vector<std::string> words_for_ranks(const CLI::App& command);

// Runs `keel` with these arguments as so many ranks, and returns their exit code: see `keel launch`.
int launch_keel(int ranks, std::vector<std::string> arguments);

// -N=8 arrives as "=8".
std::string without_equals(std::string text);

}  // namespace keel::cli
