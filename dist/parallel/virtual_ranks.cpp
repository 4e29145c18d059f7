#include "keel/dist/parallel/virtual_ranks.h"

#include <bit>

#include "keel/runtime/error.h"

namespace keel {

std::vector<VirtualRankConflict> conflicts_of_virtual_ranks(const ShardedOptions& options,
                                                            const OptimizerRequirements& optimizer) {
  const ShardingOptions& sharding = options.sharding;
  if (sharding.virtual_ranks == 0) return {};
  const DType wide = options.partial_sum_dtype();
  const std::pair<bool, VirtualRankConflict> all[] = {
      {sharding.group != 0, {"sharding.group", "groups of ranks are summed apart; set it to 0"}},
      {options.strategy != nullptr, {"outer.type", "what groups of ranks are follows from how many ranks there are"}},
      {options.compression.type != Compression::Type::none,
       {"gradient_compression.type", "partial sums travel as they are; set it to none"}},
      {options.wire.value_or(wide) != wide,
       {"sharding.wire", "partial sums travel in the numbers that they are added in; leave it out"}},
      {sharding.weight_code != WeightCode::exact,
       {"sharding.weight_code", "codes have a scale for each block of a rank's shard; set it to exact"}},
      {sharding.accumulation != Accumulation::deferred,
       {"sharding.accumulation", "a virtual rank adds up its micro-batches first; set it to deferred"}},
      {sharding.offload_gradients != Residence::device,
       {"sharding.offload_gradients", "partial sums lie where backward adds them; set it to device"}},
      {optimizer.closure, {"optimizer.type", "it adds products over the shard of each rank, not along the tree"}},
      {optimizer.rows, {"optimizer.type", "rows of tables are added in the order of ranks, not along the tree"}},
  };
  std::vector<VirtualRankConflict> conflicts;
  for (const auto& [is_there, conflict] : all)
    if (is_there) conflicts.push_back(conflict);
  return conflicts;
}

bool is_number_of_virtual_ranks(int number) {
  return number == 0 || (number > 0 && std::has_single_bit(static_cast<unsigned>(number)));
}

void check_virtual_ranks(const ShardedOptions& options, const OptimizerRequirements& optimizer, int ranks) {
  const int all = options.sharding.virtual_ranks;
  KEEL_CHECK(is_number_of_virtual_ranks(all),
             "sharding.virtual_ranks: a binary tree is over 1, 2, 4, 8 ... of them, got ", all);
  for (const VirtualRankConflict& conflict : conflicts_of_virtual_ranks(options, optimizer))
    throw Error(concat("sharding.virtual_ranks does not go together with ", conflict.key, ": ", conflict.why),
                ErrorKind::unsupported);
  KEEL_CHECK(all == 0 || (ranks <= all && is_number_of_virtual_ranks(ranks)), "sharding.virtual_ranks: ", all,
             " virtual ranks are shared by 1, 2, 4 ... ranks, ", all, " at most, and there are ", ranks,
             "; start another number of ranks, or set virtual_ranks to 0");
}

}  // namespace keel
