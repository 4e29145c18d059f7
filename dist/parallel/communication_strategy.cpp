#include "keel/dist/parallel/communication_strategy.h"

#include "keel/dist/comm/schedule.h"

namespace keel {

StrategyCost cost_of_sums(std::span<const std::int64_t> numbers, int groups, int group, std::int64_t every, int kept) {
  constexpr std::int64_t kWidth = 4;  // bytes of fp32
  StrategyCost cost{.every = every};
  for (const std::int64_t count : numbers) {
    const std::int64_t own = part({0, count}, groups, group).count();
    cost.state += kept * kWidth * count;
    cost.sent += kWidth * (count - own + (groups - 1) * own);  // to whoever adds a part, then that to all
  }
  return cost;
}

}  // namespace keel
