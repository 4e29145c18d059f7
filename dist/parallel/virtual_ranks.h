#pragma once
// What ShardingOptions::virtual_ranks asks of the number of ranks, and of the other options.

#include <string_view>
#include <vector>

#include "keel/dist/parallel/sharded_options.h"

namespace keel {

// A key of configurations, or "optimizer.type", and why it does not go together with virtual ranks as it is.
struct VirtualRankConflict {
  std::string_view key, why;
};
// All of them: sums that are no tree over the virtual ranks, and what follows from how ranks cut shards. None without
// virtual ranks.
std::vector<VirtualRankConflict> conflicts_of_virtual_ranks(const ShardedOptions& options,
                                                            const OptimizerRequirements& optimizer);

// Whether a binary tree is over so many virtual ranks: 1, 2, 4, 8 ...; or 0, for none.
bool is_number_of_virtual_ranks(int number);

// Throws an Error for the first conflict, and where these ranks cannot have equal shares of the virtual ranks.
void check_virtual_ranks(const ShardedOptions& options, const OptimizerRequirements& optimizer, int ranks);

}  // namespace keel
