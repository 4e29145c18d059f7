// Laws of sharded training: weights of micro-batches, norms, skipped steps, random rounding, memory over time.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// The gradient of a whole batch that is cut unevenly among three ranks and `micro_batches`, by a step of rate 1 from
// the same weights. `mean_of_means`: every micro-batch counts alike.
std::vector<double> moved_by(int number, int micro_batches, bool mean_of_means) {
  std::vector<double> moved;
  std::mutex mutex;
  run_ranks(3, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    ShardedOptions options = stage(number);
    options.micro_batches = micro_batches;
    Sharded engine(net, context, comm, make_sgd(), options);
    const std::vector<double> before = whole_values(engine);
    const Tensor x = uniform_tensor(context, {kBatch, kWidth}, 1), y = uniform_tensor(context, {kBatch, kWidth}, 2);
    const std::int64_t ends[] = {0, 7, 31, 48};  // rows of the ranks
    const std::int64_t first = ends[comm.rank()], count = ends[comm.rank() + 1] - first;
    for (int micro = 0; micro < micro_batches; ++micro) {
      // Later micro-batches are longer.
      const auto cut = [&](int i) { return first + count * i * (i + 1) / (micro_batches * (micro_batches + 1)); };
      const std::int64_t begin = cut(micro), end = cut(micro + 1);
      engine.backward(mse_loss(net(x.slice(0, begin, end)), Variable(y.slice(0, begin, end))),
                      {.weight = mean_of_means ? 1 : end - begin, .last = micro + 1 == micro_batches});
    }
    EXPECT_TRUE(engine.step(1).get().taken);
    const std::vector<double> after = whole_values(engine);
    const std::lock_guard lock(mutex);
    moved.clear();
    for (std::size_t i = 0; i < after.size(); ++i) moved.push_back(after[i] - before[i]);
  });
  return moved;
}

TEST(Zero, MicroBatchesAndRanksWeighByTheirTokens) {
  for (const int number : {0, 1, 2, 3}) {
    const std::vector<double> whole = moved_by(number, 1, false);
    EXPECT_LT(relative_error(moved_by(number, 4, false), whole), 1e-6) << "stage " << number;
    EXPECT_GT(relative_error(moved_by(number, 4, true), whole), 1e-3);  // the law can be broken
  }
}

// One parameter, whose gradient is the input divided by its length.
struct Vector : Module {
  Parameter values{{1'000'003}, Initializer::normal(0.1)};
  Variable operator()(const Tensor& x) const { return mean(mul(values.variable(), Variable(x))); }
  void visit(Visitor& v) override { v("values", values); }
};

TEST(Zero, ANumberThatIsNoneInTheLastElementSkipsTheStep) {
  for (const int number : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Vector net;
      Sharded engine(net, context, comm, make_sgd(), stage(number));
      const Tensor x = kernels::full(context, {1'000'003}, 1);
      if (comm.rank() == 1) kernels::fill(x.slice(0, 1'000'002, 1'000'003), std::numeric_limits<double>::quiet_NaN());
      engine.backward(net(x));
      const StepResult result = engine.step(1).get();
      EXPECT_FALSE(result.taken) << "stage " << number;
      EXPECT_EQ(result.first_bad, "values");
    });
}

TEST(Zero, TheNormIsThatOfTheWholeGradientToTheBit) {
  std::vector<double> norms;
  std::mutex mutex;
  const Context host = testing::context(1);
  // The mean of the four ranks' gradients, in fp64.
  std::vector<double> sum(1'000'003);
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<double> x = doubles(uniform_tensor(host, {1'000'003}, static_cast<std::uint64_t>(rank)));
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i] / 4 / 1'000'003;
  }
  double squares = 0;
  for (const double g : sum) squares += g * g;
  for (const int number : {0, 1, 2, 3})
    run_ranks(4, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Vector net;
      Sharded engine(net, context, comm, make_sgd(), stage(number));
      engine.backward(net(uniform_tensor(context, {1'000'003}, static_cast<std::uint64_t>(comm.rank()))));
      const double norm = engine.step(1).get().grad_norm;
      const std::lock_guard lock(mutex);
      norms.push_back(norm);
    });
  for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
  EXPECT_NEAR(norms[0], std::sqrt(squares), 1e-6 * std::sqrt(squares));
}

TEST(Zero, RandomRoundingDrawsTheSameNumbersForAnyNumberOfRanks) {
  std::vector<std::vector<double>> weights;
  std::mutex mutex;
  for (const int ranks : {1, 2, 4, 8})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net;
      ShardedOptions options = stage(2);
      options.policy = PrecisionPolicy::of(DType::bf16);
      Sharded engine(net, context, comm, make_adamw({.stochastic_rounding = true, .seed = 5}), options);
      for (int step = 0; step < 5; ++step) {
        // Every rank has the same rows, and a power of two of them adds up without rounding.
        const Tensor x = uniform_tensor(context, {4, kWidth}, static_cast<std::uint64_t>(step), DType::bf16);
        engine.backward(mean(net(x)));
        EXPECT_TRUE(engine.step(1e-2).get().taken);
      }
      const std::vector<double> values = whole_values(engine);
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) weights.push_back(values);
    });
  for (const auto& each : weights) EXPECT_TRUE(each == weights[0]);
}

TEST(Zero, ALossScaleThatStaysLeavesEveryStepAsItWouldBeWithoutOne) {
  for (const int number : {0, 3})
    run_ranks(2, [&](Communicator& comm) {
      std::vector<double> reference;
      for (const double scale : {1.0, 0.5, 2.0, 4.0, 1024.0}) {
        const Context context = testing::context(1);
        UnitNet net;
        ShardedOptions options = stage(number);
        options.loss_scale = scale;
        Sharded engine(net, context, comm, make_sgd(), options);
        for (int step = 0; step < 2; ++step) {
          const Tensor x = rows(context, step, comm, 0, 1, 100, DType::f32);
          engine.backward(mean(net(x)), {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1).get().taken);
        }
        const std::vector<double> values = whole_values(engine);
        if (reference.empty()) reference = values;
        EXPECT_TRUE(values == reference) << "scale " << scale << ", stage " << number;
      }
    });
}

// The rounding of equal numbers in bf16 depends on their place in the model.
TEST(Zero, RandomRoundingOfEachUnitIsItsOwn) {
  const Context context = testing::context(1);
  UnitNet net(kWidth, 2);
  ShardedOptions options = stage(0);
  options.policy = PrecisionPolicy::of(DType::bf16);
  Sharded engine(net, context, make_adamw({.stochastic_rounding = true, .seed = 5}), options);
  engine.backward(mean(net(uniform_tensor(context, {4, kWidth}, 1, DType::bf16))));
  for (const auto& unit : engine.units()) {
    kernels::fill(unit->parameters().own_values(), 1);
    kernels::fill(unit->gradient().own(), 1);
  }
  EXPECT_TRUE(engine.step(1e-3).get().taken);
  EXPECT_FALSE(doubles(engine.units()[0]->parameters().own_values()) ==
               doubles(engine.units()[1]->parameters().own_values()));
}

TEST(Zero, AGrowingLossScaleLeavesEveryStepAsItWouldBeWithoutOne) {
  for (const int number : {0, 1, 2, 3}) {
    std::vector<std::vector<double>> weights[2];
    for (const bool scaled : {false, true})
      run_ranks(4, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net;
        ShardedOptions options = stage(number);
        options.clip = 1e-3;
        if (scaled) {
          options.scaling = LossScaling::dynamic();
          options.scaling.interval = 2;
          options.loss_scale = 256;
        }
        Sharded engine(net, context, comm, make_sgd(), options);
        std::vector<float> scales;
        for (int step = 0; step < 10; ++step) {
          scales.push_back(engine.state().loss_scale);
          const Tensor x = rows(context, step, comm, 0, 1, 100, DType::f32);
          engine.backward(mean(net(x)), {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1).get().taken);
          const std::vector<double> values = whole_values(engine);
          if (comm.rank() == 0) weights[scaled].push_back(values);
        }
        if (scaled) { EXPECT_EQ(scales, (std::vector<float>{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096})); }
      });
    // Powers of two change no bit of fp32 gradients: the scale that a step is divided by is its own.
    for (std::size_t step = 0; step < 10; ++step)
      EXPECT_TRUE(weights[0][step] == weights[1][step]) << "stage " << number << ", step " << step;
  }
}

// Acceptance check 30.
TEST(Zero, MoreRanksThanParametersTrainTheSame) {
  struct Tiny : Module {
    Parameter values{{3}, Initializer::ones()};
    void visit(Visitor& v) override { v("values", values); }
  };
  for (const int number : {0, 1, 2, 3})
    run_ranks(8, [&](Communicator& comm) {
      Tiny net;
      Sharded engine(net, testing::context(1), comm, make_sgd(), stage(number));
      engine.backward(mean(net.values.variable()), {.weight = comm.rank() == 5 ? 0 : 1});
      EXPECT_TRUE(engine.step(3).get().taken);
      for (const double value : whole_values(engine)) EXPECT_EQ(value, 0);
    });
}

TEST(Zero, MemoryDoesNotGrowOverAThousandSteps) {
  run_ranks(4, [](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    ShardedOptions options = stage(3);
    options.policy = PrecisionPolicy::of(DType::bf16);
    Sharded engine(net, context, comm, make_adamw(), options);
    const Tensor x = uniform_tensor(context, {2, kWidth}, 1, DType::bf16);
    std::size_t peak = 0, current = 0;
    for (int step = 0; step < 1000; ++step) {
      engine.backward(mean(net(x)));
      engine.step(1e-4);
      const MemoryCount total = context.memory().total;
      if (step == 5) peak = total.peak, current = total.current;
      if (step > 5) {
        ASSERT_EQ(total.current, current) << "step " << step;
        ASSERT_EQ(total.peak, peak) << "step " << step;
      }
    }
  });
}

TEST(Zero, SixtyFourRanksFollowTheCurveOfOne) {
  std::vector<std::vector<double>> losses;
  std::mutex mutex;
  for (const int ranks : {1, 64})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, comm, make_adamw(), stage(ranks == 1 ? 0 : 3));
      std::vector<double> curve;
      for (int step = 0; step < 10; ++step) {
        const Tensor x = uniform_tensor(context, {64, kWidth}, static_cast<std::uint64_t>(step));
        const Tensor y = uniform_tensor(context, {64, kWidth}, static_cast<std::uint64_t>(900 + step));
        const Span mine = part({0, 64}, comm.size(), comm.rank());
        const Variable loss =
            mse_loss(net(x.slice(0, mine.begin, mine.end)), Variable(y.slice(0, mine.begin, mine.end)));
        engine.backward(loss, {.weight = mine.count()});
        EXPECT_TRUE(engine.step(1e-2).get().taken);
        const Tensor sum =
            tensor_of(context, {loss.value().item() * static_cast<double>(mine.count())}, {1}, DType::f64);
        comm.all_reduce(sum).wait();
        curve.push_back(sum.item() / 64);
      }
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) losses.push_back(curve);
    });
  for (std::size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-4 * losses[0][i]);
}

}  // namespace
}  // namespace keel
