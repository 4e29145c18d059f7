#pragma once
// What an engine refuses, and what its ranks must have in common.

#include <span>
#include <string>

#include "keel/dist/parallel/sharded_options.h"

namespace keel {

// Throws an Error for options that do not go together, with each other or with the optimizer. `on_host`: it works in
// the processor's memory.
void check_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                  int ranks, bool on_host);

// Whether gradients are summed over groups of ranks in each step: always, unless a strategy has something else to do.
bool sums_groups(const ShardedOptions& options, const Optimizer& optimizer);

// All that decides which collectives a rank asks for, and what they hold: one line of options, and a line of each
// parameter.
std::string describe_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                            const Optimizer& optimizer);

}  // namespace keel
