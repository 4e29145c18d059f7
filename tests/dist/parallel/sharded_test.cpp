// ZeRO stages: the same bits in every one, whatever the buckets, overlap or delays; exact bytes and exact memory.

#include "keel/dist/parallel/sharded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "keel/autograd/checkpoint.h"
#include "keel/autograd/functions.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/layers.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kWidth = 64, kBatch = 48;

// One shard unit: 64 to 65 numbers, of which 64 go on, so that no unit fills its shards.
struct Layer : Module {
  Linear linear{kWidth, kWidth + 1};
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    return tanh(slice(linear(x), 1, 0, kWidth));
  }
  void visit(Visitor& v) override { v("linear", linear); }
  bool is_unit() const override { return true; }
};

// The fixture f of the design: four such layers.
struct Net : Module {
  std::vector<Layer> layers = std::vector<Layer>(4);
  Variable operator()(const Tensor& x) const {
    Variable y(x);
    for (const Layer& layer : layers) y = layer(y);
    return y;
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

struct Plan {
  int ranks = 1;
  ShardedOptions options = {};
  DType dtype = DType::f32;
  int steps = 10;
  int micro_batches = 1;  // of each rank
  bool adam = true;
  std::uint64_t delay_seed = 0;
  std::chrono::microseconds longest_delay{0};  // before each collective
};

struct Outcome {
  std::vector<double> losses, norms, weights;
  friend bool same_bits(const Outcome& a, const Outcome& b) {
    return a.losses == b.losses && a.norms == b.norms && a.weights == b.weights;
  }
};

// The rows of a global batch that one rank works on in a micro-batch.
Tensor rows(const Context& context, int step, const Communicator& comm, int micro, int micros, std::uint64_t seed,
            DType dtype) {
  const Tensor all = uniform_tensor(context, {kBatch, kWidth}, seed + static_cast<std::uint64_t>(step), dtype);
  const Span mine = part({0, kBatch}, comm.size(), comm.rank());
  const Span span = part(mine, micros, micro);
  return all.slice(0, span.begin, span.end);
}

Outcome train(const Plan& plan) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(plan.ranks, [&](Communicator& direct) {
    DelayedCommunicator comm(direct, plan.delay_seed, plan.longest_delay);
    const Context context = testing::context(1);
    Net net;
    ShardedOptions options = plan.options;
    options.policy = PrecisionPolicy::of(plan.dtype);
    options.micro_batches = plan.micro_batches;
    Sharded engine(net, context, comm, plan.adam ? make_adamw() : make_sgd(), options);
    std::vector<double> losses, norms;
    for (int step = 0; step < plan.steps; ++step) {
      double sum = 0;
      for (int micro = 0; micro < plan.micro_batches; ++micro) {
        const Tensor x = rows(context, step, comm, micro, plan.micro_batches, 100, plan.dtype);
        const Tensor y = rows(context, step, comm, micro, plan.micro_batches, 900, plan.dtype);
        const Variable loss = mse_loss(net(x), Variable(y));
        engine.backward(loss, {.tokens = x.dim(0), .last = micro + 1 == plan.micro_batches});
        sum += loss.value().item() * static_cast<double>(x.dim(0));
      }
      const StepResult result = engine.step(1e-2);
      EXPECT_TRUE(result.taken);
      const Tensor total = tensor_of(context, {sum}, {1}, DType::f64);
      comm.all_reduce(total).wait();
      losses.push_back(total.item() / kBatch);
      norms.push_back(result.grad_norm);
    }
    std::vector<double> weights;
    for (const auto& unit : engine.units()) {
      unit->gather();
      for (const Segment& segment : unit->layout().segments)
        for (const double value : doubles(segment.parameter->variable.value())) weights.push_back(value);
      unit->release();
    }
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = {losses, norms, weights};
  });
  return outcome;
}

Plan plan_of(int ranks, int stage, DType dtype = DType::f32, int micro_batches = 1) {
  Plan plan{.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
  plan.options.sharding.stage = stage;
  plan.options.clip = 1;
  return plan;
}

ShardedOptions stage(int number) {
  ShardedOptions options;
  options.sharding.stage = number;
  return options;
}

// All numbers of the model, on every rank.
std::vector<double> whole_values(const Sharded& engine) {
  std::vector<double> all;
  for (const auto& unit : engine.units()) {
    unit->gather();
    for (const Segment& segment : unit->layout().segments)
      for (const double value : doubles(segment.parameter->variable.value())) all.push_back(value);
    unit->release();
  }
  return all;
}

TEST(Zero, StagesAreBitwiseEqual) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Outcome reference = train(plan_of(ranks, 0, dtype));
      for (const int stage : {1, 2, 3})
        EXPECT_TRUE(same_bits(train(plan_of(ranks, stage, dtype)), reference))
            << ranks << " ranks, stage " << stage << ", " << dtype;
    }
  }
}

TEST(Zero, StagesAreBitwiseEqualWithMicroBatchesThatAreReducedAtTheEnd) {
  for (const int ranks : {2, 3, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Outcome reference = train(plan_of(ranks, 0, dtype, 4));
      for (const int stage : {1, 2, 3}) {
        Plan plan = plan_of(ranks, stage, dtype, 4);
        plan.options.sharding.reduce_each_backward = false;
        EXPECT_TRUE(same_bits(train(plan), reference)) << ranks << " ranks, stage " << stage << ", " << dtype;
      }
    }
  }
}

TEST(Zero, AnyNumberOfRanksFollowsTheCurveOfOne) {
  for (const bool adam : {false, true}) {
    Plan plan = plan_of(1, 0);
    plan.adam = adam;
    const Outcome one = train(plan);
    for (const int ranks : {2, 4, 8}) {
      plan.ranks = ranks;
      plan.options.sharding.stage = 2;
      const Outcome several = train(plan);
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(several.losses[i], one.losses[i], (adam ? 1e-4 : 1e-5) * one.losses[i]) << ranks << " ranks";
    }
  }
}

TEST(Zero, BucketsOverlapAndPrefetchChangeNoBit) {
  const Outcome reference = train(plan_of(4, 0));
  for (const int stage : {0, 2, 3}) {
    for (const std::int64_t cap : {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{1} << 40}) {
      for (const int prefetch : {0, 1, 2, 4}) {
        if (stage < 3 && prefetch > 0) continue;
        for (const bool overlap : {false, true}) {
          Plan plan = plan_of(4, stage);
          plan.options.sharding.first_bucket = plan.options.sharding.bucket = cap;
          plan.options.sharding.overlap = overlap;
          plan.options.sharding.prefetch = prefetch;
          EXPECT_TRUE(same_bits(train(plan), reference))
              << "stage " << stage << ", cap " << cap << ", prefetch " << prefetch << ", overlap " << overlap;
        }
      }
    }
  }
}

// The fixture F: four layers of 1,024 by 1,024 numbers and their biases, a unit each.
struct Wide : Module {
  struct Layer : Module {
    Linear linear{1024, 1024};
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      return linear(x);
    }
    void visit(Visitor& v) override { v("linear", linear); }
    bool is_unit() const override { return true; }
  };
  std::vector<Layer> layers = std::vector<Layer>(4);
  Variable operator()(const Tensor& x) const {
    Variable y(x);
    for (const Layer& layer : layers) y = layer(y);
    return y;
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

struct Measured {
  std::int64_t sent = 0, control = 0;  // bytes of one rank in one step
  std::size_t state = 0;               // bytes of parameters, gradients and optimizer state of one rank
  std::size_t buckets_peak = 0;        // of what is whole for a while
  std::vector<std::int64_t> buckets;   // bytes of gradients
};

Measured measure(int ranks, ShardedOptions options, int micro_batches = 1, DType dtype = DType::bf16) {
  Measured measured;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Wide net;
    options.policy = PrecisionPolicy::of(dtype);
    if (micro_batches == 1) options.policy.gradient = dtype;
    options.micro_batches = micro_batches;
    Sharded engine(net, context, comm, make_adamw(), options);
    const MemoryReport memory = context.memory();
    const auto kept = [&](Purpose purpose) { return memory.by_purpose[static_cast<std::size_t>(purpose)].current; };
    const std::size_t state = kept(Purpose::parameter) + kept(Purpose::gradient) + kept(Purpose::optimizer);
    const auto run = [&] {
      for (int micro = 0; micro < micro_batches; ++micro) {
        const Variable loss = mean(net(uniform_tensor(context, {2, 1024}, 5, dtype)));
        engine.backward(loss, {.last = micro + 1 == micro_batches});
      }
      engine.step(1e-3);
      for (const auto& unit : engine.units()) unit->wait_gathered();
    };
    run();
    const std::int64_t sent = comm.traffic().sent(), control = engine.control_traffic().sent();
    context.allocator().reset_peaks();
    run();
    const std::lock_guard lock(mutex);
    const Measured mine{.sent = comm.traffic().sent() - sent,
                        .control = engine.control_traffic().sent() - control,
                        .state = state,
                        .buckets_peak = context.memory().by_purpose[static_cast<std::size_t>(Purpose::bucket)].peak,
                        .buckets = {}};
    if (measured.sent != 0) {
      EXPECT_EQ(mine.sent, measured.sent) << "ranks send the same";
      EXPECT_EQ(mine.state, measured.state) << "ranks keep the same";
    }
    measured = mine;
    for (const auto& bucket : engine.buckets()) {
      measured.buckets.push_back(0);
      for (const std::size_t unit : bucket) measured.buckets.back() += engine.units()[unit]->gradient_bytes();
    }
  });
  return measured;
}

TEST(ZeroBytes, AreThoseOfTheFormulas) {
  for (const int number : {0, 1, 2}) {
    EXPECT_EQ(measure(4, stage(number)).sent, 12'595'200) << "stage " << number;
    EXPECT_EQ(measure(3, stage(number)).sent, 11'198'464) << "stage " << number;
    EXPECT_EQ(measure(8, stage(number)).sent, 14'694'400) << "stage " << number;
  }
  EXPECT_EQ(measure(4, stage(3)).sent, 18'892'800);
  EXPECT_EQ(measure(3, stage(3)).sent, 16'797'696);
  EXPECT_EQ(measure(8, stage(3)).sent, 22'041'600);
  ShardedOptions kept = stage(3);
  kept.sharding.keep_last_unit = true;
  EXPECT_EQ(measure(4, kept).sent, 17'318'400);
}

TEST(ZeroBytes, OfFourMicroBatchesAreThoseOfTheFormulas) {
  EXPECT_EQ(measure(4, stage(1), 4).sent, 12'595'200);
  EXPECT_EQ(measure(4, stage(2), 4).sent, 31'488'000);
  EXPECT_EQ(measure(4, stage(3), 4).sent, 75'571'200);
  ShardedOptions deferred = stage(3);
  deferred.sharding.reduce_each_backward = false;
  EXPECT_EQ(measure(4, deferred, 4).sent, 56'678'400);
}

TEST(ZeroBytes, OfAnFp32WireAreTwiceThoseOfTheGradients) {
  for (const int number : {1, 2}) {
    ShardedOptions options = stage(number);
    options.wire = DType::f32;
    EXPECT_EQ(measure(4, options).sent, 18'892'800) << "stage " << number;
  }
}

TEST(ZeroBytes, OfFlagNormAndTokensAreTwentyFourForEachRank) {
  for (const int number : {0, 1, 2, 3}) EXPECT_EQ(measure(4, stage(number)).control, 3 * 24) << "stage " << number;
}

TEST(ZeroMemory, IsThatOfTheFormulas) {
  const std::size_t four[] = {67'174'400, 29'388'800, 23'091'200, 16'793'600};
  const std::size_t three[] = {67'190'784, 33'595'392, 27'996'160, 22'396'928};
  const std::size_t eight[] = {67'174'400, 23'091'200, 15'744'000, 8'396'800};
  for (const int number : {0, 1, 2, 3}) {
    EXPECT_EQ(measure(4, stage(number)).state, four[number]) << "stage " << number;
    EXPECT_EQ(measure(3, stage(number)).state, three[number]) << "stage " << number;
    EXPECT_EQ(measure(8, stage(number)).state, eight[number]) << "stage " << number;
  }
}

// At prefetch 1: two units of whole parameters, one of whole gradients, and the one that is being summed.
TEST(ZeroMemory, OfWhatIsWholeForAWhileIsThreeUnitsInStageThree) {
  const std::size_t unit = 2'099'200;
  EXPECT_LE(measure(4, stage(3)).buckets_peak, 4 * unit);
}

TEST(Buckets, CloseWhenTheirSizeReachesTheLimit) {
  EXPECT_EQ(measure(2, stage(0), 1, DType::f32).buckets, (std::vector<std::int64_t>{4'198'400, 12'595'200}));
}

TEST(Zero, DelaysOfAnyRankChangeNoBit) {
  for (const int number : {0, 1, 2, 3}) {
    Plan plan = plan_of(4, number);
    plan.steps = 3;
    const Outcome reference = train(plan);
    plan.longest_delay = std::chrono::milliseconds(2);
    for (plan.delay_seed = 1; plan.delay_seed <= 5; ++plan.delay_seed)
      EXPECT_TRUE(same_bits(train(plan), reference)) << "stage " << number << ", seed " << plan.delay_seed;
  }
}

TEST(Zero, TheNormIsThatOfAnFp64Sum) {
  run_ranks(4, [](Communicator& comm) {
    const Context context = testing::context(1);
    Net net;
    ShardedOptions options = stage(2);
    options.clip = 1e-3;
    Sharded engine(net, context, comm, make_sgd(), options);
    const std::vector<double> before = whole_values(engine);
    const Tensor x = rows(context, 0, comm, 0, 1, 100, DType::f32);
    engine.backward(mean(net(x)), {.tokens = x.dim(0)});
    const double norm = engine.step(1).grad_norm;
    // A step of rate 1 moves the weights by the clipped gradient.
    const std::vector<double> after = whole_values(engine);
    double squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) squares += (before[i] - after[i]) * (before[i] - after[i]);
    EXPECT_GT(norm, 1e-3);
    EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-6 * 1e-3 + 1e-7);
  });
}

// Parameters of awkward sizes, one of which is frozen or shared on demand.
struct Odd : Module {
  Parameter large{{1'000'003}, Initializer::normal(0.1)};
  Parameter small{{7}, Initializer::ones()};
  Variable operator()(const Tensor& x) const {
    return mul(mean(mul(large.variable(), Variable(x))), mean(small.variable()));
  }
  void visit(Visitor& v) override {
    v("large", large);
    v("small", small);
  }
};

TEST(Zero, PaddingNeverCountsEvenWhenItIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::mutex mutex;
  std::vector<double> reference;
  double norm = 0;
  for (const int number : {0, 1, 2, 3}) {
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Odd net;
      ShardedOptions options = stage(number);
      options.clip = 1e-4;
      Sharded engine(net, context, comm, make_adamw(), options);
      double last_norm = 0;
      for (int step = 0; step < 3; ++step) {
        const Tensor x = uniform_tensor(context, {1'000'003}, static_cast<std::uint64_t>(10 * step + comm.rank()));
        const Variable loss = net(x);
        const FlatBuffer& layout = engine.units()[0]->layout();
        if (layout.gradient.storage()->resident())
          kernels::fill(layout.gradient.slice(0, layout.numel, layout.padded), nan);
        engine.backward(loss);
        const StepResult result = engine.step(1e-2);
        EXPECT_TRUE(result.taken);
        last_norm = result.grad_norm;
      }
      const std::vector<double> values = whole_values(engine);
      const std::lock_guard lock(mutex);
      if (reference.empty()) {
        reference = values;
        norm = last_norm;
      }
      EXPECT_TRUE(values == reference) << "stage " << number;
      EXPECT_EQ(last_norm, norm);
    });
  }
}

// One weight used twice, once under recomputation; half of the layers frozen.
struct Tied : Module {
  std::vector<Layer> layers = std::vector<Layer>(4);
  Linear head{kWidth, kWidth};
  Tied() {
    for (const std::size_t i : {1, 3}) {
      layers[i].linear.weight.set_trainable(false);
      layers[i].linear.bias.set_trainable(false);
    }
  }
  Variable operator()(const Tensor& x) const {
    Variable y = head(Variable(x));
    for (const Layer& layer : layers) y = checkpoint([&](const Variable& in) { return layer(in); }, y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("layers", layers);
    v("head", head);
  }
};

TEST(Zero, FrozenSharedAndRecomputedParametersKeepTheBits) {
  std::mutex mutex;
  for (const int ranks : {2, 3, 4}) {
    std::vector<double> reference;
    std::vector<std::size_t> state;
    for (const int number : {0, 1, 2, 3}) {
      run_ranks(ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        Tied net;
        Sharded engine(net, context, comm, make_adamw(), stage(number));
        for (int step = 0; step < 5; ++step) {
          const Tensor x = rows(context, step, comm, 0, 1, 100, DType::f32);
          engine.backward(mse_loss(net(x), Variable(rows(context, step, comm, 0, 1, 900, DType::f32))),
                          {.tokens = x.dim(0)});
          EXPECT_TRUE(engine.step(1e-2).taken);
        }
        const std::vector<double> values = whole_values(engine);
        const std::lock_guard lock(mutex);
        if (reference.empty()) reference = values;
        EXPECT_TRUE(values == reference) << ranks << " ranks, stage " << number;
      });
    }
  }
}

TEST(Zero, AParameterThatOneRankDoesNotUseGetsTheMeanWithZeros) {
  std::mutex mutex;
  for (const int number : {0, 1, 2, 3}) {
    std::vector<std::vector<double>> weights;
    run_ranks(4, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Odd net;
      Sharded engine(net, context, comm, make_sgd(), stage(number));
      // d(loss)/d(small) is 1/7 for each element where it is used.
      const Variable used = mean(net.small.variable());
      const Variable other = mean(net.large.variable());
      engine.backward(comm.rank() == 1 ? other : add(used, other));
      EXPECT_TRUE(engine.step(1).taken);
      const std::vector<double> values = whole_values(engine);
      for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(values[1'000'003 + i], 1 - 3.0 / 4 / 7, 1e-6);
    });
  }
}

TEST(Zero, AParameterThatIsNotUsedIsAnErrorWhereItIsAskedFor) {
  try {
    run_ranks(4, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Odd net;
      ShardedOptions options = stage(2);
      options.sharding.strict = true;
      Sharded engine(net, context, comm, make_sgd(), options);
      const Variable other = mean(net.large.variable());
      engine.backward(comm.rank() == 1 ? other : add(mean(net.small.variable()), other));
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the parameter small got no gradient on rank 1"), std::string::npos)
        << error.what();
  }
}

TEST(Zero, AnInfinityOnOneRankSkipsTheStepOfAllAndHalvesTheScale) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int number : {0, 1, 2, 3}) {
      run_ranks(4, [&](Communicator& comm) {
        const Context context = testing::context(1);
        Net net;
        ShardedOptions options = stage(number);
        options.policy = PrecisionPolicy::of(dtype);
        if (dtype == DType::f16) {
          options.scaling = LossScaling::dynamic();
          options.loss_scale = 256;
        }
        Sharded engine(net, context, comm, make_adamw(), options);
        const auto backward = [&](bool bad) {
          const Tensor x = kernels::clone(rows(context, 0, comm, 0, 1, 100, dtype));
          if (bad) kernels::fill(x.slice(0, 0, 1), std::numeric_limits<double>::infinity());
          engine.backward(mean(net(x)), {.tokens = x.dim(0)});
        };
        backward(false);
        EXPECT_TRUE(engine.step(1e-2).taken);
        const std::vector<double> before = whole_values(engine);
        std::vector<double> state;
        for (const ParameterRange& range : engine.ranges())
          for (const Tensor& tensor : range.state)
            for (const double value : doubles(tensor)) state.push_back(value);
        backward(comm.rank() == 2);
        const StepResult result = engine.step(1e-2);
        EXPECT_FALSE(result.taken);
        EXPECT_FALSE(result.first_bad.empty());
        EXPECT_EQ(engine.state().skips_in_a_row, 1);
        EXPECT_EQ(engine.state().steps, 1);
        EXPECT_EQ(engine.state().loss_scale, dtype == DType::f16 ? 128 : 1);
        EXPECT_TRUE(whole_values(engine) == before);
        std::size_t i = 0;
        for (const ParameterRange& range : engine.ranges())
          for (const Tensor& tensor : range.state)
            for (const double value : doubles(tensor)) ASSERT_EQ(value, state[i++]);
        backward(false);
        EXPECT_TRUE(engine.step(1e-2).taken);
      });
    }
  }
}

struct Sequence : Module {
  std::vector<Linear> layers;
  explicit Sequence(std::int64_t width) { layers.emplace_back(width, width); }
  void visit(Visitor& v) override { v("layers", layers); }
};

TEST(Zero, ADifferentModelOrOptionIsNamedOnEveryRankBeforeTraining) {
  const auto complaint = [](const std::function<void(Communicator&)>& f) {
    std::mutex mutex;
    std::vector<std::string> told;
    try {
      run_ranks(3, [&](Communicator& comm) {
        try {
          f(comm);
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          told.push_back(error.what());
          throw;
        }
      });
    } catch (const Error&) {}
    EXPECT_EQ(told.size(), 3u);
    const auto shortest =
        std::min_element(told.begin(), told.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    // A rank that was a little late hears it from another one.
    for (const std::string& text : told) EXPECT_NE(text.find(*shortest), std::string::npos) << text;
    return shortest == told.end() ? "" : *shortest;
  };
  EXPECT_EQ(complaint([](Communicator& comm) {
              Sequence net(comm.rank() == 2 ? 5 : 4);
              Sharded engine(net, testing::context(1), comm, make_sgd());
            }),
            "ranks differ in their model or options: rank 0 has layers.0.weight (4, 4) in unit '', rank 2 has "
            "layers.0.weight (5, 5) in unit ''");
  const std::string stages = complaint([](Communicator& comm) {
    Sequence net(4);
    Sharded engine(net, testing::context(1), comm, make_sgd(), stage(comm.rank() == 1 ? 2 : 1));
  });
  EXPECT_NE(stages.find("rank 0 has stage 1;"), std::string::npos) << stages;
  EXPECT_NE(stages.find("rank 1 has stage 2;"), std::string::npos) << stages;
}

}  // namespace
}  // namespace keel
