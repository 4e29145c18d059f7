#include "keel/dist/comm/deal_by_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace keel {
namespace {

using Costs = std::vector<std::int64_t>;
using Receivers = std::vector<int>;

TEST(DealByCost, GivesTheCostliestFirstToWhoHasTheLeast) {
  EXPECT_EQ(deal_by_cost(Costs{3, 9, 4, 2}, 2), (Receivers{1, 0, 1, 1}));
  EXPECT_EQ(deal_by_cost(Costs{1, 5, 1, 5, 1}, 3), (Receivers{2, 0, 2, 1, 2}));
}

TEST(DealByCost, GivesOfEqualOnesTheFirstToTheFirst) {
  EXPECT_EQ(deal_by_cost(Costs{7, 7, 7, 7, 7}, 3), (Receivers{0, 1, 2, 0, 1}));
}

TEST(DealByCost, LeavesReceiversWithoutAnythingWhereThereIsTooLittle) {
  EXPECT_EQ(deal_by_cost(Costs{1, 2}, 4), (Receivers{1, 0}));
  EXPECT_EQ(deal_by_cost(Costs{4, 4, 1}, 1), (Receivers{0, 0, 0}));
  EXPECT_EQ(deal_by_cost(Costs{}, 3), Receivers{});
}

TEST(DealByCost, NobodyHasMoreThanTheCostliestThingAboveAnother) {
  for (int receivers = 1; receivers <= 5; ++receivers) {
    for (std::int64_t draw = 0; draw < 20; ++draw) {
      Costs costs(12), sums(static_cast<std::size_t>(receivers));
      for (std::size_t i = 0; i < costs.size(); ++i)
        costs[i] = 1 + (static_cast<std::int64_t>(i) * 37 + draw * 101) % 53;
      const Receivers dealt = deal_by_cost(costs, receivers);
      for (std::size_t i = 0; i < costs.size(); ++i) sums[static_cast<std::size_t>(dealt[i])] += costs[i];
      const auto [least, most] = std::ranges::minmax(sums);
      EXPECT_LE(most - least, std::ranges::max(costs));
      EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}),
                std::accumulate(costs.begin(), costs.end(), std::int64_t{0}));
    }
  }
}

}  // namespace
}  // namespace keel
