#pragma once
// What tests of strategies of communication share: training by groups of ranks.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/comm/decorators.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

using MakeInner = std::unique_ptr<Optimizer> (*)();
inline std::unique_ptr<Optimizer> adam() { return make_adamw(); }
inline std::unique_ptr<Optimizer> plain_sgd() { return make_sgd(); }

struct GroupRun {
  int ranks = 2, group = 1, steps = 7;
  ShardedOptions options = stage(0);
  MakeInner inner = adam;
  double rate = 1e-2;
  std::uint64_t delays = 0;
  DType dtype = DType::f32;
};

struct GroupResult {
  std::vector<std::vector<double>> weights;  // by rank
  std::int64_t across = 0;                   // bytes that rank 0 sent to other groups
};

inline void train_step(Sharded& engine, const UnitNet& net, Communicator& comm, int step, DType dtype, double rate) {
  const Tensor x = rows(engine.context(), step, comm, 0, 1, 100, dtype);
  const Tensor y = rows(engine.context(), step, comm, 0, 1, 900, dtype);
  engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0)});
  EXPECT_TRUE(engine.step(rate).get().taken);
}

inline GroupResult trained_in_groups(const GroupRun& run) {
  ShardedOptions options = run.options;
  options.policy = PrecisionPolicy::of(run.dtype);
  options.sharding.group = run.group;
  std::vector<int> nodes;
  for (int r = 0; r < run.ranks; ++r) nodes.push_back(r / run.group);
  GroupResult result;
  result.weights.resize(static_cast<std::size_t>(run.ranks));
  std::mutex mutex;
  run_ranks(run.ranks,
            [&](Communicator& direct) {
              DelayedCommunicator comm(direct, run.delays, std::chrono::microseconds(run.delays == 0 ? 0 : 300));
              UnitNet net;
              Sharded engine(net, testing::context(1), comm, run.inner(), options);
              const std::int64_t before = engine.data_traffic().between_nodes;
              for (int step = 0; step < run.steps; ++step) train_step(engine, net, comm, step, run.dtype, run.rate);
              for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
              const std::int64_t across = engine.data_traffic().between_nodes - before;
              const std::vector<double> weights = whole_values(engine);
              const std::lock_guard lock(mutex);
              result.weights[static_cast<std::size_t>(comm.rank())] = weights;
              if (comm.rank() == 0) result.across = across;
            },
            {.nodes = nodes});
  return result;
}

}  // namespace keel::testing
