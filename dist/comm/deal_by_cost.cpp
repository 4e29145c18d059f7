#include "keel/dist/comm/deal_by_cost.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace keel {

std::vector<int> deal_by_cost(std::span<const std::int64_t> costs, int receivers) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return costs[i]; });
  std::vector<std::int64_t> load(static_cast<std::size_t>(receivers), 0);
  std::vector<int> dealt(costs.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    dealt[i] = static_cast<int>(least - load.begin());
    *least += costs[i];
  }
  return dealt;
}

}  // namespace keel
