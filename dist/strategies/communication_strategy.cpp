#include "keel/dist/strategies/communication_strategy.h"

#include "keel/dist/comm/elements_sent.h"
#include "keel/kernels/elementwise.h"

namespace keel {

StrategyCost cost_of_sums(std::span<const StrategyNumbers> units, const StrategyPlace& place, std::int64_t every,
                          int kept) {
  constexpr std::int64_t kWidth = 4;  // bytes of fp32
  StrategyCost cost{.every = every, .saved = kept};
  for (const auto& [count, shards] : units) {
    (place.weights_on_host ? cost.host_state : cost.state) += kept * kWidth * count;
    cost.sent += kWidth * elements_sent(place.route, CollectiveKind::all_reduce,
                                        {.rank = place.group, .size = place.groups, .count = count});
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
