// Every optimizer under every stage, and from one checkpoint on.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/kernels/elementwise.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/kernels/every_rule.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr int kRanks = 3, kSteps = 4;

std::unique_ptr<Optimizer> optimizer_of(const RuleCase& rule) {
  return make_elementwise(rule.name, {.settings = rule.settings, .weight_decay = rule.decay()});
}

// Two groups: matrices, which decay, and biases at half the rate.
ShardedOptions options_with_groups(int number) {
  ShardedOptions options = stage(number);
  options.groups = [](std::string_view name, const Dims& shape) {
    ParameterGroup group = decay_matrices_only(name, shape);
    if (shape.size() == 1) group.lr_factor = 0.5;
    return group;
  };
  return options;
}

void train_steps(Sharded& engine, const UnitNet& net, Communicator& comm, int first, int last) {
  for (int step = first; step < last; ++step) {
    const Tensor x = rows(engine.context(), step, comm, 0, 1, 100, DType::f32);
    const Tensor y = rows(engine.context(), step, comm, 0, 1, 900, DType::f32);
    engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2 / (1 + step)).get().taken);
  }
}

TEST(ShardedOptimizers, GiveTheSameBitsInEveryStage) {
  for (const RuleCase& rule : every_rule()) {
    std::vector<std::vector<double>> weights(4);
    std::vector<double> shared(4);
    std::mutex mutex;
    for (int number = 0; number <= 3; ++number)
      run_ranks(kRanks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net;
        Sharded engine(net, context, comm, optimizer_of(rule), options_with_groups(number));
        train_steps(engine, net, comm, 0, kSteps);
        const std::vector<double> whole = whole_values(engine);
        const TensorParts state = engine.optimizer_state();
        const std::lock_guard lock(mutex);
        if (comm.rank() == 0) weights[static_cast<std::size_t>(number)] = whole;
        if (engine.optimizer().shared_number() == nullptr) return;
        const double mine = doubles(state.back().values)[0];
        if (comm.rank() == 0) shared[static_cast<std::size_t>(number)] = mine;
        EXPECT_EQ(state.back().name, concat("shared.", engine.optimizer().shared_number()->name));
        EXPECT_NE(mine, engine.optimizer().shared_number()->initial);
      });
    for (int number = 1; number <= 3; ++number) {
      EXPECT_EQ(weights[static_cast<std::size_t>(number)], weights[0]) << rule.name << ", stage " << number;
      EXPECT_EQ(shared[static_cast<std::size_t>(number)], shared[0]) << rule.name << ", stage " << number;
    }
  }
}

TEST(ShardedOptimizers, GoOnFromTheirStateAsIfTheyHadNeverStopped) {
  for (const RuleCase& rule : every_rule())
    run_ranks(kRanks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net, copy;
      Sharded engine(net, context, comm, optimizer_of(rule), options_with_groups(2));
      Sharded other(copy, context, comm, optimizer_of(rule), options_with_groups(2));
      train_steps(engine, net, comm, 0, 2);
      other.load_weights(engine.weights());
      other.load_optimizer_state(engine.optimizer_state(), engine.state());
      train_steps(engine, net, comm, 2, kSteps);
      train_steps(other, copy, comm, 2, kSteps);
      EXPECT_EQ(numbers_of(other.weights()), numbers_of(engine.weights())) << rule.name;
      EXPECT_EQ(numbers_of(other.optimizer_state()), numbers_of(engine.optimizer_state())) << rule.name;
    });
}

TEST(ShardedOptimizers, KeepTheirNumbersInASkippedStep) {
  for (const RuleCase& rule : every_rule()) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, optimizer_of(rule), options_with_groups(0));
    const Tensor x = uniform_tensor(context, {4, kWidth}, 1);
    engine.backward(mean(net(x)));
    EXPECT_TRUE(engine.step(1e-2).get().taken);
    const std::vector<double> weights = numbers_of(engine.weights()), state = numbers_of(engine.optimizer_state());
    engine.backward(mean(net(kernels::full(context, {4, kWidth}, NAN, DType::f32))));
    EXPECT_FALSE(engine.step(1).get().taken) << rule.name;
    EXPECT_EQ(numbers_of(engine.weights()), weights) << rule.name;
    EXPECT_EQ(numbers_of(engine.optimizer_state()), state) << rule.name;
  }
}

}  // namespace
}  // namespace keel
