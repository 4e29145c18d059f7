// Models that use a layer several times, and what becomes of its weights and of their gradient.

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// A unit that says how often it is used.
struct RepeatedLayer : UnitLayer {
  explicit RepeatedLayer(std::int64_t times) : times(times) {}
  std::int64_t times;
  std::int64_t uses() const override { return times; }
};

// As ALBERT: one layer many times, between two others. The root has a vector of its own, unless it is not to be seen.
struct SharedNet : Module {
  explicit SharedNet(std::int64_t declared = 3) : shared(declared) {}
  UnitLayer first, last;
  RepeatedLayer shared;
  Parameter shift{{kWidth}, Initializer::zeros()};
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Variable y = add(first(Variable(x)), shift.variable());
    for (int use = 0; use < 3; ++use) y = shared(y);
    return last(y);
  }
  void visit(Visitor& v) override {
    v("shift", shift);
    v("first", first);
    v("shared", shared);
    v("last", last);
  }
};

ShardedOptions in_dtype(ShardedOptions options, DType dtype) {
  options.policy = PrecisionPolicy::of(dtype);
  return options;
}

std::vector<double> trained(int ranks, const ShardedOptions& options, int micro_batches) {
  std::vector<double> weights;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    SharedNet net;
    ShardedOptions mine = options;
    mine.micro_batches = micro_batches;
    Sharded engine(net, context, comm, make_adamw(), mine);
    for (int step = 0; step < 3; ++step) {
      for (int micro = 0; micro < micro_batches; ++micro) {
        const Tensor x = rows(context, step, comm, micro, micro_batches, 9, options.policy.parameter);
        engine.backward(mean(net(x)), {.weight = x.dim(0), .last = micro + 1 == micro_batches});
      }
      EXPECT_TRUE(engine.step(1e-2).get().taken);
    }
    const std::vector<double> values = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (!weights.empty()) { EXPECT_TRUE(values == weights) << "ranks differ"; }
    weights = values;
  });
  return weights;
}

TEST(SharedUnits, TrainToTheSameBitsInEveryStage) {
  for (const int ranks : {2, 3})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int micro_batches : {1, 2}) {
        const std::vector<double> expected = trained(ranks, in_dtype(each_backward(0), dtype), micro_batches);
        for (const int number : {1, 2, 3})
          for (const int prefetch : number == 3 ? std::vector{0, 1, 3} : std::vector{1}) {
            ShardedOptions options = in_dtype(each_backward(number), dtype);
            options.sharding.prefetch = prefetch;
            EXPECT_TRUE(trained(ranks, options, micro_batches) == expected)
                << ranks << " ranks, stage " << number << ", " << dtype << ", prefetch " << prefetch;
          }
      }
}

// The collectives of a step, by the number of the unit.
struct Asked {
  std::vector<int> gathers = std::vector<int>(4), sums = std::vector<int>(4);
  std::int64_t sent = 0, planned = 0;
  std::size_t buckets_peak = 0, planned_peak = 0;
};

Asked asked_in_the_second_step(const ShardedOptions& options) {
  Asked asked;
  run_ranks(2, [&](Communicator& direct) {
    bool counts = false;
    const bool first = direct.rank() == 0;
    Asked mine;
    WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& each) {
      if (!counts || each.subject == 0) return;
      const auto unit = static_cast<std::size_t>(each.subject - options.first_subject);
      if (each.kind == CollectiveKind::all_gather) ++mine.gathers.at(unit);
      if (each.kind == CollectiveKind::reduce_scatter) ++mine.sums.at(unit);
    });
    const Context context = testing::context(1);
    SharedNet net;
    Sharded engine(net, context, comm, make_adamw(), options);
    for (int step = 0; step < 2; ++step) {
      counts = step == 1;
      const std::int64_t before = engine.data_traffic().sent();
      context.allocator().reset_peaks();
      engine.backward(mean(net(rows(context, step, comm, 0, 1, 9, options.policy.parameter))));
      EXPECT_TRUE(engine.step(1e-2).get().taken);
      mine.sent = engine.data_traffic().sent() - before;
    }
    mine.buckets_peak = context.memory().by_purpose[static_cast<std::size_t>(Purpose::bucket)].peak;
    SharedNet planned;
    const RankPlan plan = plan_rank(lay_out(planned, 2), *make_adamw(), options, 2, direct.rank());
    mine.planned = plan.traffic.sent();
    mine.planned_peak = static_cast<std::size_t>(plan.memory.buckets);
    if (first) asked = mine;
  });
  return asked;
}

TEST(SharedUnits, AreGatheredOnceForAllUsesOfAPassAndSummedOnce) {
  for (const int prefetch : {0, 1, 2, 5}) {
    ShardedOptions options = stage(3);
    options.sharding.prefetch = prefetch;
    const Asked asked = asked_in_the_second_step(options);
    EXPECT_EQ(asked.gathers, (std::vector{1, 2, 2, 2})) << "prefetch " << prefetch;
    EXPECT_EQ(asked.sums, (std::vector{1, 1, 1, 1}));
    EXPECT_EQ(asked.sent, asked.planned);
    // Plans let the root's gradient begin first, as a head's does.
    EXPECT_EQ(asked.buckets_peak + 128 * sizeof(float), asked.planned_peak) << "prefetch " << prefetch;
  }
}

// The gradient of the shared layer's weight, with that of three layers which have the same weights.
TEST(SharedUnits, AddUpTheGradientsOfTheirUsesInFp32) {
  const Context context = testing::context(1);
  const Tensor x = uniform_tensor(context, {4, kWidth}, 3, DType::bf16);
  SharedNet net;
  Sharded engine(net, context, make_sgd(), in_dtype(stage(0), DType::bf16));

  struct Apart : Module {
    std::vector<UnitLayer> layers = std::vector<UnitLayer>(5);
    void visit(Visitor& v) override { v("layers", layers); }
  } apart;
  ShardedOptions wide = in_dtype(stage(0), DType::bf16);
  wide.micro_batches = 2;  // so that each layer's gradient is kept in fp32
  Sharded each(apart, context, make_sgd(), wide);
  const UnitLayer* const same[] = {&net.first, &net.shared, &net.shared, &net.shared, &net.last};
  Variable y(x);
  for (std::size_t i = 0; i < 5; ++i) {
    for (const auto of : {&Linear::weight, &Linear::bias})
      kernels::copy_into((apart.layers[i].linear.*of).variable().value(), (same[i]->linear.*of).variable().value());
    y = apart.layers[i](y);
  }
  engine.backward(sum(net(x)));
  each.backward(sum(y), {.last = false});
  const Tensor whole = net.shared.linear.weight.variable().grad();
  EXPECT_EQ(whole.dtype(), DType::f32);
  const Tensor expected = kernels::clone(apart.layers[3].linear.weight.variable().grad());
  for (const std::size_t i : {2, 1}) kernels::accumulate(expected, apart.layers[i].linear.weight.variable().grad());
  EXPECT_EQ(doubles(whole), doubles(expected));
}

TEST(SharedUnits, AreNamedInAWarningWhereTheirModuleDoesNotSayThatTheyAre) {
  for (const std::int64_t declared : {1, 3}) {
    std::vector<std::string> said;
    ContextOptions with_log{.threads = 1};
    with_log.log = [&](LogLevel level, std::string_view text) {
      if (level == LogLevel::warning) said.emplace_back(text);
    };
    const Context context = Context::create(with_log);
    SharedNet net(declared);
    Sharded engine(net, context, make_sgd(), in_dtype(stage(0), DType::bf16));
    for (int step = 0; step < 2; ++step) {
      engine.backward(mean(net(uniform_tensor(context, {2, kWidth}, 3, DType::bf16))));
      engine.step(1e-2);
    }
    ASSERT_EQ(said.size(), declared == 1 ? 1u : 0u);
    if (declared == 1) { EXPECT_NE(said.front().find("uses the unit 'shared' 3 times"), std::string::npos) << said[0]; }
  }
}

}  // namespace
}  // namespace keel
