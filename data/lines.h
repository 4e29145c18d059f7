#pragma once
// The lines of a text as a data set.

#include <string>

#include "keel/data/dataset.h"
#include "keel/data/line_file.h"

namespace keel {

// Each line that is not empty is an example with the field `text`, without what ends it. Empty lines are left out, or
// an Error with file and line where others stand behind them. The file is indexed at once (large ones: once, see
// keel/data/line_index.h), and lines are read when they are asked for. One that is not UTF-8 is an Error with file,
// line and byte, when it is read.
DatasetPtr open_lines(const std::string& path, const LineFileOptions& options = {});

}  // namespace keel
