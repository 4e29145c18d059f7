#pragma once
// The lines of a text as a data set.

#include <cstdint>
#include <functional>
#include <string>

#include "keel/data/dataset.h"
#include "keel/data/empty_lines.h"

namespace keel {

struct LinesOptions {
  EmptyLines empty_lines = EmptyLines::left_out;
  // Where an index of a large file lies that cannot be written beside it; empty: below ~/.cache.
  std::string cache_folder = {};
  // Told how many of the file's bytes are indexed.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Each line that is not empty is an example with the field `text`; empty lines before it may be refused. The file is
// indexed at once (large ones: once, see keel/data/line_index.h), and lines are read when they are asked for. One that
// is not UTF-8 is an Error with file, line and byte.
DatasetPtr open_lines(const std::string& path, const LinesOptions& options = {});

}  // namespace keel
