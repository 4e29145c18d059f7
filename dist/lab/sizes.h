#pragma once
// Bytes as people write them, and the sizes of a sweep.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel::lab {

// "8", "64K", "1.5M", "2GiB": powers of 1024, with or without "B" or "iB". An Error where it is no such size.
std::int64_t parse_size(std::string_view text);
// The shortest text that parse_size() reads as that size: "64K", "1000".
std::string size_text(std::int64_t bytes);

// begin, begin * factor, ... up to `end`. An Error where nothing is between them, or the factor does not grow.
std::vector<std::int64_t> size_sweep(std::int64_t begin, std::int64_t end, double factor);
// begin, begin + step, ... up to `end`. An Error where nothing is between them, or the step is none.
std::vector<std::int64_t> size_steps(std::int64_t begin, std::int64_t end, std::int64_t step);

}  // namespace keel::lab
