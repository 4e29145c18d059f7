// Strategies of communication from which nothing is left once weights are loaded: all groups begin with those.

#include <gtest/gtest.h>

#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "tests/dist/parallel/group_runs.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(RestartedGroups, TakeTheStepsOfAnEngineThatIsNew) {
  const StrategyMaker strategies[] = {
      [] { return make_outer_steps({.every = 3, .rate = 0.7, .momentum = 0.9, .nesterov = true}); },
      [] {
        return make_outer_steps({.every = 4, .rate = 0.7, .momentum = 0.9, .fragments = 2, .delay = 2, .blend = 0.25});
      },
      [] { return make_sparse_outer_steps({.every = 3, .rate = 0.8, .decay = 0.9, .chunk = 100, .keep = 7}); },
      [] { return make_fast_components({.decay = 0.9, .chunk = 16, .keep = 3}); }};
  for (const StrategyMaker& make : strategies)
    run_ranks(2, [&](Communicator& comm) {
      ShardedOptions options = stage(0);
      options.sharding.group = 1;
      options.strategy = make;
      UnitNet used_net, fresh_net;
      Sharded used(used_net, testing::context(1), comm, make_sgd(), options),
          fresh(fresh_net, testing::context(1), comm, make_sgd(), options);
      for (int step = 0; step < 5; ++step) train_step(used, used_net, comm, 20 + step, DType::f32, 0.1);
      used.load_weights(fresh.weights());
      used.restart_groups();
      for (int step = 0; step < 5; ++step) {
        train_step(used, used_net, comm, step, DType::f32, 0.1);
        train_step(fresh, fresh_net, comm, step, DType::f32, 0.1);
        EXPECT_TRUE(whole_values(used) == whole_values(fresh)) << make()->describe() << ", step " << step;
      }
    });
}

}  // namespace
}  // namespace keel
