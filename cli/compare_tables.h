#pragma once
// The tables of `keel compare`: weights, bytes and times of its runs.

#include <vector>

#include "keel/trainer/compare.h"

namespace keel::cli {

// Prints them, `width` columns wide, and returns whether all is as it must be.
bool print_tables(const std::vector<ComparedRun>& runs, const Config& config, int ranks, const CompareOptions& options,
                  int width);

}  // namespace keel::cli
