#pragma once
// Files as examples.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

struct FilesOptions {
  // Told how many files are counted.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Each file an example of two texts: `name`, the path as it is given, and `text`, its contents, decompressed where gzip
// has compressed them. A text that is not UTF-8 is an Error that names file, line and byte. All files are read once at
// the start, for the fingerprint, and again when they are asked for; one that has changed since is an Error.
DatasetPtr open_files(std::vector<std::string> paths, const FilesOptions& options = {});

}  // namespace keel
