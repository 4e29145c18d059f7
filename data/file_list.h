#pragma once
// Which files a name stands for: one, those of a folder, or those that a pattern fits.

#include <string>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// A folder: its files, in the order of their names; hidden ones, and those that keel keeps beside others
// (NAME.keel-index), are left out, and so is what lies in folders inside it. A name whose last part has * or ? and is
// no file's: the files that it fits (`shards/train_*.bin`), likewise. Any other name: itself, whether or not it is
// there. An Error where a folder cannot be read, or nothing fits.
std::vector<std::string> files_at(const std::string& path);

// The file or folder that a name stands for: of a pattern the one file that it fits; an Error where it fits several.
std::string one_file_at(const std::string& path);

}  // namespace keel
