// Sums of plans over the models of a task.

#include <gtest/gtest.h>

#include <array>
#include <bit>

#include "keel/dist/plan/rank_plan.h"

namespace keel {
namespace {

// Plans whose numbers are all different.
constexpr std::size_t kNumbersOfMemory = sizeof(MemoryPlan) / 8, kNumbersOfTraffic = sizeof(TrafficPlan) / 8;

template <class Numbers, std::size_t N>
std::array<std::int64_t, N> numbers_in(const Numbers& plan) {
  return std::bit_cast<std::array<std::int64_t, N>>(plan);
}

RankPlan numbered_plan(std::int64_t first, std::int64_t strategy_steps) {
  std::array<std::int64_t, kNumbersOfMemory> memory;
  std::array<std::int64_t, kNumbersOfTraffic> traffic;
  for (std::int64_t& each : memory) each = first++;
  for (std::int64_t& each : traffic) each = first++;
  RankPlan plan;
  plan.memory = std::bit_cast<MemoryPlan>(memory);
  plan.traffic = std::bit_cast<TrafficPlan>(traffic);
  plan.traffic.strategy_steps = strategy_steps;
  plan.owned = first++;
  plan.saves = plan.updates_on_host = true;
  plan.matrix_operations = first++;
  plan.collectives.emplace_back().count = first;
  return plan;
}

TEST(PlanSum, OverModelsHaveEveryNumber) {
  const RankPlan a = numbered_plan(100, 1), b = numbered_plan(1'000, 1);
  RankPlan sum;
  EXPECT_FALSE(sum.saves || sum.updates_on_host);
  sum += a;
  const auto memory = numbers_in<MemoryPlan, kNumbersOfMemory>;
  const auto traffic = numbers_in<TrafficPlan, kNumbersOfTraffic>;
  EXPECT_EQ(memory(sum.memory), memory(a.memory));
  EXPECT_EQ(traffic(sum.traffic), traffic(a.traffic));
  EXPECT_TRUE(sum.saves && sum.updates_on_host);
  sum += b;
  for (std::size_t i = 0; i < kNumbersOfMemory; ++i)
    EXPECT_EQ(memory(sum.memory)[i], memory(a.memory)[i] + memory(b.memory)[i]) << i;
  EXPECT_EQ(sum.traffic.strategy_steps, 1);
  sum.traffic.strategy_steps = 2;
  for (std::size_t i = 0; i < kNumbersOfTraffic; ++i)
    EXPECT_EQ(traffic(sum.traffic)[i], traffic(a.traffic)[i] + traffic(b.traffic)[i]) << i;
  EXPECT_EQ(sum.owned, a.owned + b.owned);
  EXPECT_EQ(sum.matrix_operations, a.matrix_operations + b.matrix_operations);
  ASSERT_EQ(sum.collectives.size(), 2u);
  EXPECT_EQ(sum.collectives[1].count, b.collectives[0].count);
}

TEST(PlanSum, OfWhatStrategiesSendAreOfWindowsOfBoth) {
  RankPlan sum = numbered_plan(100, 4);
  const RankPlan more = numbered_plan(200, 6);
  const std::int64_t first = sum.traffic.strategy;
  sum += more;
  EXPECT_EQ(sum.traffic.strategy_steps, 12);
  EXPECT_EQ(sum.traffic.strategy, 3 * first + 2 * more.traffic.strategy);
  sum += RankPlan{};
  EXPECT_EQ(sum.traffic.strategy_steps, 12) << "a model without strategy adds nothing";
  EXPECT_EQ(sum.traffic.strategy, 3 * first + 2 * more.traffic.strategy);
}

}  // namespace
}  // namespace keel
