#pragma once
// Options that several commands take.

#include <string>

#include "command.h"

namespace keel {
struct Config;
}

namespace keel::cli {

// Files of other trainers that are read beside a configuration.
struct FilesBeside {
  std::string deepspeed = {}, accelerate = {};  // paths; empty: none
  int ranks = 0;                                // that train; 0: as many as the files say, or one
};

// CONFIG.yaml and KEY=VALUE...
Option configuration(std::string* variable);
Option overrides(Words* variable);

// The configuration as those say it. Keys of the file that an override makes meaningless are named on the standard
// error, where `speaks`: one rank of several does.
// A file of another trainer's is read as keel's own; `beside` says what else belongs to it, and how many ranks train.
Config read_configuration(const std::string& file, const Words& changes, bool speaks = true,
                          const FilesBeside& beside = {});

// `auto` asks a processor how fast it is; a plan does not know which one, and takes bf16. Returns whether it was auto.
bool assume_precision(Config& config);

// --deepspeed_config_file and --config_file, as other launchers have them.
Option deepspeed_file(FilesBeside* beside);
Option accelerate_file(FilesBeside* beside);
// The path that the latter names: "default" is what `accelerate config` writes, in $HF_HOME/accelerate, or else in
// $XDG_CACHE_HOME/huggingface/accelerate or ~/.cache/huggingface/accelerate. An Error where that file is not there.
std::string accelerate_path(const std::string& named);

// --columns: of what is printed. 0, the default: those of columns_of_output().
Option columns_option(int* variable);
// Columns of the terminal that the standard output is; 80 of anything else.
int columns_of_output();
// The arguments of ranks that this program starts, whose output is no terminal, with the columns of its own.
Words with_columns(Words words, int asked);

// --threads
Option ranks_as_threads(bool* variable);

// Numbers that a user wrote, "inf" and "nan" among them; `what` names them where one is none.
std::vector<double> numbers_of(const Words& words, std::string_view what);

}  // namespace keel::cli
