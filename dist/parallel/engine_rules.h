#pragma once
// What an engine refuses, and what its ranks must have in common.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/sharded_options.h"

namespace keel {

// Throws an Error for options that do not go together, with each other or with the optimizer. `on_host`: it works in
// the processor's memory.
void check_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options, const Optimizer& optimizer,
                  int ranks, bool on_host);

// Throws an Error that names the first parameter whose gradient the optimizer does not take, because it is kept as
// rows, or because it is not.
void check_gradients(std::span<const FlatBuffer> layout, const Optimizer& optimizer);

// A key of configurations, or "optimizer.type", and why it does not go together with virtual ranks as it is.
struct VirtualRankConflict {
  std::string_view key, why;
};
// All of them: sums that are no tree over the virtual ranks, and what follows from how ranks cut shards. None without
// virtual ranks.
std::vector<VirtualRankConflict> conflicts_of_virtual_ranks(const ShardedOptions& options,
                                                            const SettledRequirements& optimizer);

// Why gradients of such parameters are not added up in such numbers, and what to do about it; empty: they are.
std::string conflict_of_gradients(const PrecisionPolicy& policy);

// Whether a binary tree is over so many virtual ranks: 1, 2, 4, 8 ...; or 0, for none.
bool is_number_of_virtual_ranks(int number);

// Throws an Error where so many ranks cannot have these stages, groups and virtual ranks: for the first conflict, and
// where the ranks have no equal shares of the virtual ones.
void check_ranks(const ShardedOptions& options, const OptimizerRequirements& optimizer, int ranks);

// Whether gradients are summed over groups of ranks in each step: always, unless a strategy has something else to do.
bool sums_groups(const ShardedOptions& options, const Optimizer& optimizer);

// All that decides which collectives a rank asks for, and what they hold: one line of options, and a line of each
// parameter.
std::string describe_engine(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                            const Optimizer& optimizer);

}  // namespace keel
