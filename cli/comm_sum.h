#pragma once
// `keel comm --sum`: numbers of ranks added by the algorithms themselves, in which order each does it, and what comes
// out.

#include "comm_wish.h"

namespace keel::cli {

// Runs an all_reduce of arguments.sum, one number of each rank, by each algorithm and in each dtype, and prints a
// table. Ranks are threads. Throws an Error where something is asked for that it does not do; returns the exit code.
int print_sums(const CommArguments& arguments);

}  // namespace keel::cli
