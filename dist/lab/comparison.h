#pragma once
// Compares two reports: what became faster or slower by more than the spread of the calls.

#include <string>
#include <vector>

#include "keel/dist/lab/report.h"

namespace keel::lab {

struct ComparedTiming {
  const Record* record = nullptr;      // of the first report
  std::string_view variant;            // "out_of_place" or "in_place"
  double first_us = 0, second_us = 0;  // medians of calls
  double ratio = 1;                    // second / first
  // The middle halves of the calls, from the first to the third quartile, have nothing in common.
  bool is_beyond_spread = false;
};

struct Comparison {
  std::vector<ComparedTiming> timings = {};                    // in the order of the first report
  std::vector<std::string> only_first = {}, only_second = {};  // what has no counterpart
};

// Records of one collective, algorithm, dtype, size and number of ranks belong together. The first report must outlive
// the result.
Comparison compare(const Report& first, const Report& second);

}  // namespace keel::lab
