#pragma once
// The lines of a text as a data set.

#include <string>

#include "keel/data/dataset.h"

namespace keel {

// An example for each line that is not empty, with one field, "text", without the line's end. The file is indexed at
// once (keel/data/line_index.h), and lines are read when they are asked for.
DatasetPtr open_text_lines(const std::string& path);

}  // namespace keel
