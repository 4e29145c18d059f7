#pragma once
// `keel comm --predict`: what more ranks will cost, from what --json wrote of fewer.

#include <string>
#include <vector>

#include "keel/dist/lab/report.h"

namespace keel::cli {

// A table for each collective, algorithm and dtype that keel has a formula for, a line for each size and number of
// ranks; `ranks_per_node` of the predicted ones, 0 where all share a node.
std::string prediction_text(const std::vector<lab::Report>& reports, const std::vector<int>& ranks, int ranks_per_node);

}  // namespace keel::cli
