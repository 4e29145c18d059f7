#pragma once
// Laws of compressed gradients, wherever the ranks are: what is delivered, and what is left for later.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

#include "keel/dist/comm/decorators.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

// Where a law is tried.
struct World {
  std::string name;
  // Calls f on each of n ranks, with the context of its device.
  std::function<void(int n, const std::function<void(Communicator&, const Context&)>& f)> run;
  std::vector<int> ranks = {2, 3, 4};
  int steps = 5;  // of most trainings
  std::int64_t width = kWidth;
  int layers = 4;
  std::string why_not = {};  // why it cannot be tried here
  std::function<void()> leave = [] {};

  UnitNet net() const { return UnitNet(width, layers); }
};

inline std::ostream& operator<<(std::ostream& out, const World& world) { return out << world.name; }

class CompressionLaws : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (!GetParam().why_not.empty()) GTEST_SKIP() << GetParam().why_not;
  }
  void TearDown() override { GetParam().leave(); }
};

inline constexpr Compression kInt8 = {.type = Compression::Type::int8}, kInt4 = {.type = Compression::Type::int4};
inline constexpr Compression kPowerSgd = {.type = Compression::Type::power_sgd, .rank = 3};
inline Compression top_k_of(double fraction) { return {.type = Compression::Type::top_k, .fraction = fraction}; }
inline std::vector<Compression> all_kinds() { return {kInt8, kInt4, top_k_of(0.03), kPowerSgd}; }

inline std::string text_of(const Compression& c) { return concat(c.kind().name, ' ', c.fraction, ' ', c.rank); }

inline ShardedOptions options_of(int number, const Compression& compression) {
  ShardedOptions options = stage(number);
  options.compression = compression;
  return options;
}

// A training of some steps, seen by rank 0: its weights, which all ranks must have, and its losses.
struct Trained {
  std::vector<double> weights, losses;
  std::int64_t sent = 0;  // of the last step
};

struct Training {
  int ranks = 2, steps = 5;
  ShardedOptions options;
  std::uint64_t delays = 0;  // seed; 0: none
  int bad_step = -1;         // in which a rank's gradient is not finite
  double rate = 0.5;
};

inline Variable loss_of(const UnitNet& net, const Context& context, int step, const Communicator& comm) {
  const auto data = [&](std::uint64_t seed) {
    const Tensor all = rows(context, step % 3, comm, 0, 1, seed, DType::f32);
    return kernels::contiguous(all.slice(1, 0, net.layers.front().width));
  };
  return mse_loss(net(data(1)), Variable(data(77)));
}

inline Trained train(const World& world, const Training& training) {
  Trained result;
  std::mutex mutex;
  world.run(training.ranks, [&](Communicator& ranks, const Context& context) {
    DelayedCommunicator delayed(ranks, training.delays, std::chrono::microseconds(training.delays == 0 ? 0 : 300));
    UnitNet net = world.net();
    Sharded engine(net, context, delayed, make_sgd(), training.options);
    std::vector<double> losses;
    std::int64_t before = 0;
    for (int step = 0, good = 0; step < training.steps; ++step) {
      const bool is_bad = step == training.bad_step;
      Variable loss = loss_of(net, context, is_bad ? 2 : good++, ranks);
      losses.push_back(loss.value().item());
      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
      before = engine.data_traffic().sent();
      if (is_bad && ranks.rank() == 1)
        loss = mul(loss, Variable(kernels::full(context, loss.shape(), std::numeric_limits<double>::infinity())));
      engine.backward(loss, {.weight = rows(context, 0, ranks, 0, 1, 1, DType::f32).dim(0)});
      EXPECT_EQ(engine.step(training.rate).get().taken, !is_bad);
    }
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
    const std::int64_t sent = engine.data_traffic().sent() - before;
    const std::vector<double> weights = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (result.weights.empty()) result = {weights, losses, 0};
    EXPECT_EQ(weights, result.weights) << "rank " << ranks.rank();
    if (ranks.rank() == 0) result = {weights, losses, sent};
  });
  return result;
}

// After two steps `other`, a run like `engine`'s, takes over all that is kept, and both go on to the same weights.
inline void expect_to_go_on(Sharded& engine, const UnitNet& net, Sharded& other, const UnitNet& copy,
                            const Context& context, Communicator& ranks, const std::string& what) {
  const auto train_from = [&](Sharded& trained, const UnitNet& of, int first) {
    for (int step = first; step < first + 2; ++step) {
      trained.backward(loss_of(of, context, step, ranks));
      EXPECT_TRUE(trained.step(0.5).get().taken);
    }
  };
  train_from(engine, net, 0);
  other.load_weights(engine.weights());
  other.load_optimizer_state(engine.optimizer_state(), engine.state());
  const TensorParts state = engine.compression_state();
  for (const TensorPart& part : state) EXPECT_EQ(part.values.numel(), part.numel()) << part.name;
  other.load_compression_state(std::span(&state, 1));
  train_from(engine, net, 2);
  train_from(other, copy, 2);
  EXPECT_EQ(whole_values(other), whole_values(engine)) << what;
}

}  // namespace keel::testing
