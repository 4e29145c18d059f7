#include "keel/dist/strategies/communication_strategy.h"

#include "keel/dist/comm/schedule.h"
#include "keel/kernels/elementwise.h"

namespace keel {

StrategyCost cost_of_sums(std::span<const StrategyNumbers> units, int groups, int group, std::int64_t every, int kept) {
  constexpr std::int64_t kWidth = 4;  // bytes of fp32
  StrategyCost cost{.every = every};
  for (const auto& [count, shards] : units) {
    const std::int64_t own = part({0, count}, groups, group).count();
    cost.state += kept * kWidth * count;
    cost.sent += kWidth * (count - own + (groups - 1) * own);  // to whoever adds a part, then that to all
  }
  return cost;
}

Tensor kept_copy(const Tensor& x) {
  const Tensor copy = empty(x.context(), x.shape(), DType::f32, Purpose::optimizer);
  kernels::copy_into(copy, x);
  return copy;
}

Tensor scaled_copy(const Tensor& x, double factor) {
  const Tensor copy = empty(x.context(), x.shape(), DType::f32, Purpose::bucket);
  kernels::copy_into(copy, x);
  kernels::scale(copy, factor);
  return copy;
}

}  // namespace keel
