// Optimizers that need sums over whole parameters, whoever has which part of them.

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "keel/kernels/elementwise.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/kernels/every_rule.h"

namespace keel {
namespace {

using namespace keel::testing;

std::vector<RuleCase> measuring_rules() {
  std::vector<RuleCase> rules = every_rule();
  std::erase_if(rules, [](const RuleCase& rule) { return norm_count(rule.settings) == 0; });
  return rules;
}

std::unique_ptr<Optimizer> measuring_optimizer(const RuleCase& rule, bool stochastic_rounding = false) {
  return make_elementwise(
      rule.name,
      {.settings = rule.settings, .weight_decay = rule.decay(), .stochastic_rounding = stochastic_rounding, .seed = 7});
}

// Four clipped steps of two micro-batches; matrices decay, biases do not and have half the rate.
std::vector<double> trained_weights(const RuleCase& rule, Communicator& comm, ShardedOptions options, DType dtype,
                                    bool stochastic_rounding = false) {
  const Context context = testing::context(1);
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = 2;
  options.clip = 0.5;
  options.groups = [](std::string_view name, const Dims& shape) {
    ParameterGroup group = decay_matrices_only(name, shape);
    if (shape.size() == 1) group.lr_factor = 0.5;
    return group;
  };
  UnitNet net;
  Sharded engine(net, context, comm, measuring_optimizer(rule, stochastic_rounding), options);
  for (int step = 0; step < 4; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      const Tensor x = rows(context, step, comm, micro, 2, 100, dtype);
      const Tensor y = rows(context, step, comm, micro, 2, 900, dtype);
      engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0), .last = micro == 1});
    }
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  return whole_values(engine);
}

// What the last of so many ranks ends with.
std::vector<double> trained_weights(const RuleCase& rule, int ranks, const ShardedOptions& options,
                                    DType dtype = DType::f32, bool stochastic_rounding = false) {
  std::vector<double> weights;
  run_ranks(ranks, [&](Communicator& comm) {
    const std::vector<double> mine = trained_weights(rule, comm, options, dtype, stochastic_rounding);
    if (comm.rank() + 1 == comm.size()) weights = mine;
  });
  return weights;
}

TEST(TensorSums, GiveTheSameBitsInEveryStageForEachNumberOfRanks) {
  for (const RuleCase& rule : measuring_rules()) {
    const std::vector<double> alone = trained_weights(rule, 1, stage(0));
    for (const int ranks : {2, 3, 4}) {
      const std::vector<double> reference = trained_weights(rule, ranks, stage(0));
      for (const int number : {1, 2, 3})
        EXPECT_TRUE(trained_weights(rule, ranks, stage(number)) == reference)
            << rule.name << ", " << ranks << " ranks, stage " << number;
      // Gradients, norms and losses are sums in another order.
      EXPECT_LT(relative_error(reference, alone), 1e-6) << rule.name << ", " << ranks << " ranks";
    }
  }
}

TEST(TensorSums, GiveTheSameBitsInEveryStageInBf16) {
  for (const RuleCase& rule : measuring_rules())
    for (const bool stochastic_rounding : {false, true}) {
      const std::vector<double> reference = trained_weights(rule, 3, stage(0), DType::bf16, stochastic_rounding);
      for (const int number : {1, 2, 3})
        EXPECT_TRUE(trained_weights(rule, 3, stage(number), DType::bf16, stochastic_rounding) == reference)
            << rule.name << ", stage " << number << (stochastic_rounding ? ", rounded at random" : "");
    }
}

TEST(TensorSums, OfGroupsAreThoseOfOneGroup) {
  for (const RuleCase& rule : measuring_rules())
    for (const int group : {1, 2}) {
      ShardedOptions options = stage(1);
      options.sharding.group = group;
      const std::vector<double> reference = trained_weights(rule, 4, options);
      for (const int number : {2, 3}) {
        options.sharding.stage = number;
        EXPECT_TRUE(trained_weights(rule, 4, options) == reference)
            << rule.name << ", groups of " << group << ", stage " << number;
      }
      EXPECT_LT(relative_error(reference, trained_weights(rule, 4, stage(0))), 1e-6)
          << rule.name << ", groups of " << group;
    }
}

// What all ranks keep of an optimizer's state, from one step or from what was kept before.
TensorParts state_of_ranks(const RuleCase& rule, int ranks, const Context& host, const TensorParts* load) {
  TensorParts all;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, comm, measuring_optimizer(rule), stage(2));
    if (load != nullptr) {
      TensorParts mine = *load;
      for (TensorPart& part : mine)
        if (part.values.defined()) part.values = transfer(part.values, context);
      engine.load_optimizer_state(mine, {});
    } else {
      engine.backward(mean(net(uniform_tensor(context, {4, kWidth}, 1))), {.weight = 4});
      EXPECT_TRUE(engine.step(1e-2).get().taken);
    }
    const std::lock_guard lock(mutex);
    for (TensorPart part : engine.optimizer_state()) {
      if (part.values.defined()) part.values = transfer(part.values, host);
      all.push_back(part);
    }
  });
  return all;
}

TEST(TensorSums, OptimizerStateGoesToAnyNumberOfRanks) {
  const Context host = testing::context(1);
  for (const RuleCase& rule : measuring_rules()) {
    const TensorParts two = state_of_ranks(rule, 2, host, nullptr), three = state_of_ranks(rule, 3, host, &two);
    std::map<std::string, Dims> shapes;
    for (const TensorPart& part : two) shapes[part.name] = part.shape;
    NamedTensors before, after;
    for (const auto& [name, shape] : shapes) {
      before.emplace_back(name, zeros(host, shape));
      after.emplace_back(name, zeros(host, shape));
    }
    copy_parts(two, parts_of(before), "two ranks");
    copy_parts(three, parts_of(after), "three ranks");
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(doubles(before[i].second), doubles(after[i].second)) << rule.name << ' ' << before[i].first;
      EXPECT_NE(doubles(before[i].second), doubles(zeros(host, before[i].second.shape()))) << before[i].first;
    }
  }
}

}  // namespace
}  // namespace keel
