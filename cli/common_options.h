#pragma once
// Options that several commands take.

#include <string>

#include "command.h"

namespace keel {
struct Config;
}

namespace keel::cli {

// CONFIG.yaml and KEY=VALUE...
Option configuration(std::string* variable);
Option overrides(Words* variable);

// The configuration as those say it. Keys of the file that an override makes meaningless are named on the standard
// error, where `speaks`: one rank of several does.
Config read_configuration(const std::string& file, const Words& changes, bool speaks = true);

// --columns: of what is printed. 0, the default: those of columns_of_output().
Option columns_option(int* variable);
// Columns of the terminal that the standard output is; 80 of anything else.
int columns_of_output();
// The arguments of ranks that this program starts, whose output is no terminal, with the columns of its own.
Words with_columns(Words words, int asked);

// --threads
Option ranks_as_threads(bool* variable);

}  // namespace keel::cli
