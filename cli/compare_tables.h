#pragma once
// The tables of `keel compare`: weights, bytes and times of its runs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/compare.h"

namespace keel::cli {

// A line that says which of so many steps of the way `name` were skipped; empty: none.
std::string skipped_text(std::string_view name, const SkippedOfTraining& skipped, std::int64_t steps);

// Prints them, `width` columns wide, and returns whether all is as it must be.
bool print_tables(const std::vector<ComparedRun>& runs, const Config& config, int ranks, const CompareOptions& options,
                  int width);

}  // namespace keel::cli
