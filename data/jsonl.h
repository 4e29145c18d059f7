#pragma once
// JSON lines as a data set: an object a line.

#include <string>

#include "keel/data/dataset.h"
#include "keel/data/line_file.h"

namespace keel {

// Members are fields: a number, a whole number where it has neither a dot nor an exponent, true and false as 1 and 0, a
// text, and lists of numbers, also of equally long ones, as Numbers, or Integers where all are whole. Whatever else it
// is (an object, a list of texts) is Nested, as it is written, for a map that knows more; null is no field. Whole
// numbers beyond 64 bits are numbers; numbers beyond doubles are an Error, and so are two members of one name. Lines
// that are empty are left out, or refused. A line that is no object of JSON (RFC 8259): an Error with file, line,
// column (in bytes) and what was expected. The file is indexed at once (large ones: once, see keel/data/line_index.h),
// and lines are read when they are asked for.
DatasetPtr open_jsonl(const std::string& path, const LineFileOptions& options = {});

}  // namespace keel
