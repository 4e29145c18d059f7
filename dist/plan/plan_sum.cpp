#include <iterator>
#include <numeric>

#include "keel/dist/plan/rank_plan.h"

namespace keel {
namespace {

constexpr std::int64_t MemoryPlan::*kMemoryNumbers[] = {
    &MemoryPlan::parameter,       &MemoryPlan::gradient,     &MemoryPlan::optimizer,
    &MemoryPlan::undelivered,     &MemoryPlan::partial_sums, &MemoryPlan::gathered,
    &MemoryPlan::whole_gradients, &MemoryPlan::buckets,      &MemoryPlan::host,
    &MemoryPlan::host_buckets,    &MemoryPlan::file,         &MemoryPlan::checkpoint,
    &MemoryPlan::copies};
static_assert(sizeof(MemoryPlan) == std::size(kMemoryNumbers) * sizeof(std::int64_t), "every number is in the list");

// But for those of strategies.
constexpr std::int64_t TrafficPlan::*kTrafficNumbers[] = {
    &TrafficPlan::gathers, &TrafficPlan::reductions, &TrafficPlan::matrices,    &TrafficPlan::control,
    &TrafficPlan::offload, &TrafficPlan::file_read,  &TrafficPlan::file_written};
static_assert(sizeof(TrafficPlan) == (std::size(kTrafficNumbers) + 2) * sizeof(std::int64_t),
              "every number is in the list");

}  // namespace

MemoryPlan& operator+=(MemoryPlan& sum, const MemoryPlan& more) {
  for (std::int64_t MemoryPlan::*const each : kMemoryNumbers) sum.*each += more.*each;
  return sum;
}

TrafficPlan& operator+=(TrafficPlan& sum, const TrafficPlan& more) {
  for (std::int64_t TrafficPlan::*const each : kTrafficNumbers) sum.*each += more.*each;
  const std::int64_t steps = std::lcm(sum.strategy_steps, more.strategy_steps);
  sum.strategy = steps / sum.strategy_steps * sum.strategy + steps / more.strategy_steps * more.strategy;
  sum.strategy_steps = steps;
  return sum;
}

RankPlan& operator+=(RankPlan& sum, const RankPlan& more) {
  // All members, so that this fits no plan with a further one.
  auto& [memory, owned, saves, updates_on_host, traffic, operations, collectives] = sum;
  const auto& [more_memory, more_owned, more_saves, more_on_host, more_traffic, more_operations, more_collectives] =
      more;
  memory += more_memory;
  owned += more_owned;
  saves |= more_saves;
  updates_on_host |= more_on_host;
  traffic += more_traffic;
  operations += more_operations;
  collectives.insert(collectives.end(), more_collectives.begin(), more_collectives.end());
  return sum;
}

}  // namespace keel
