#pragma once
// The measuring part of `keel comm`: it measures what was asked for, on the ranks that there are.

#include <functional>

#include "comm_wish.h"

namespace keel::cli {

// Every rank calls it; what is measured is printed and written by rank 0. Returns the exit code: 1 where an element was
// wrong, that of a signal where one ended it.
int measure_ranks(Communicator& ranks, const CommArguments& arguments, const std::function<int()>& signal);

// Writes what was asked for.
void save_report(const lab::Report& report, const CommArguments& arguments);

}  // namespace keel::cli
