#pragma once
// What a strategy has in memory at once, beside what its cost says.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/strategies/communication_strategy.h"
#include "tests/support.h"

namespace keel::testing {

// Three ranks, each a group, take three steps of three units; of shards of one rank and of two.
inline void expect_memory_of_cost(const std::function<std::unique_ptr<CommunicationStrategy>()>& make) {
  for (const int shards : {1, 2})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      const auto strategy = make();
      std::vector<StrategyUnit> units;
      std::vector<StrategyNumbers> numbers;
      for (const std::int64_t count : {30, 150, 250}) {
        units.push_back({"unit", zeros(context, {count}), zeros(context, {count}), shards});
        numbers.push_back({.count = count, .shards = shards});
      }
      strategy->begin({.units = units, .context = context, .outer = comm});
      for (int step = 0; step < 3; ++step) {
        strategy->before_step([] { return 1.0; });
        strategy->after_step([] { return true; });
      }
      EXPECT_EQ(strategy->cost(numbers, {.groups = 3, .group = comm.rank()}).at_once,
                static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak));
    });
}

}  // namespace keel::testing
