// Sharding where it is not plain: padding, frozen and shared parameters, unused ones, and steps that are skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "keel/autograd/checkpoint.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(Zero, TheNormIsThatOfAnFp64Sum) {
  run_ranks(4, [](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    ShardedOptions options = stage(2);
    options.clip = 1e-3;
    Sharded engine(net, context, comm, make_sgd(), options);
    const std::vector<double> before = whole_values(engine);
    const Tensor x = rows(context, 0, comm, 0, 1, 100, DType::f32);
    engine.backward(mean(net(x)), {.weight = x.dim(0)});
    const double norm = engine.step(1).get().grad_norm;
    // A step of rate 1 moves the weights by the clipped gradient.
    const std::vector<double> after = whole_values(engine);
    double squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) squares += (before[i] - after[i]) * (before[i] - after[i]);
    EXPECT_GT(norm, 1e-3);
    EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-6 * 1e-3 + 1e-7);
  });
}

// By how much a step of rate 1 moves each weight.
std::vector<double> moves(Communicator& comm, const ShardedOptions& options, int micros, double* norm = nullptr) {
  const Context context = testing::context(1);
  UnitNet net;
  Sharded engine(net, context, comm, make_sgd(), options);
  std::vector<double> moved = whole_values(engine);
  for (int micro = 0; micro < micros; ++micro) {
    const Tensor x = rows(context, 0, comm, micro, micros, 100, options.policy.parameter);
    engine.backward(mean(net(x)), {.weight = x.dim(0), .last = micro + 1 == micros});
  }
  const StepResult result = engine.step(1).get();
  EXPECT_TRUE(result.taken);
  if (norm != nullptr) *norm = result.grad_norm;
  const std::vector<double> after = whole_values(engine);
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= after[i];
  return moved;
}

TEST(Zero, ClipsEachElementOfTheMeanGradientInEveryStage) {
  constexpr double kLimit = 1e-4;
  std::mutex mutex;
  for (const int ranks : {1, 2, 3})
    for (const DType dtype : {DType::f32, DType::f16})
      for (const int micros : {1, 2}) {
        std::vector<double> first;
        for (const int number : {0, 1, 2, 3})
          run_ranks(ranks, [&](Communicator& comm) {
            ShardedOptions options = stage(number);
            options.policy = PrecisionPolicy::of(dtype);
            options.micro_batches = micros;
            if (dtype == DType::f16) {
              options.scaling = LossScaling::dynamic();
              options.loss_scale = 256;
            }
            double norm = 0, norm_before = 0;
            const std::vector<double> whole = moves(comm, options, micros, &norm_before);
            options.clip_by = ClipBy::value;
            options.clip = 1e6;
            EXPECT_TRUE(moves(comm, options, micros) == whole) << "nothing reaches the limit";
            options.clip = kLimit;
            const std::vector<double> clipped = moves(comm, options, micros, &norm);
            EXPECT_EQ(norm, norm_before) << "it is told as it was";
            // Weights of about 0.1, in fp32 or fp16, are rounded when they move.
            const double rounding = dtype == DType::f16 ? 2e-4 : 2e-8;
            int reached = 0;
            for (std::size_t i = 0; i < whole.size(); ++i) {
              reached += std::abs(whole[i]) > kLimit ? 1 : 0;
              ASSERT_NEAR(clipped[i], std::clamp(whole[i], -kLimit, kLimit), rounding) << i;
            }
            EXPECT_GT(reached, 100);
            EXPECT_LT(reached, static_cast<int>(whole.size()));
            const std::lock_guard lock(mutex);
            if (first.empty()) first = clipped;
            EXPECT_TRUE(first == clipped) << "stage " << number << ' ' << dtype << " by " << ranks;
          });
      }
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
        const StepResult result = engine.step(1e-2).get();
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
  std::vector<UnitLayer> layers = std::vector<UnitLayer>(4);
  Linear head{kWidth, kWidth};
  Tied() {
    for (const std::size_t i : {1, 3}) {
      layers[i].linear.weight.set_trainable(false);
      layers[i].linear.bias.set_trainable(false);
    }
  }
  Variable operator()(const Tensor& x) const {
    Variable y = head(Variable(x));
    for (const UnitLayer& layer : layers) y = checkpoint([&](const Variable& in) { return layer(in); }, y);
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
                          {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1e-2).get().taken);
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
      EXPECT_TRUE(engine.step(1).get().taken);
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
        UnitNet net;
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
          engine.backward(mean(net(x)), {.weight = x.dim(0)});
        };
        backward(false);
        EXPECT_TRUE(engine.step(1e-2).get().taken);
        const std::vector<double> before = whole_values(engine);
        std::vector<double> state;
        for (const ParameterRange& range : engine.ranges())
          for (const Tensor& tensor : range.state)
            for (const double value : doubles(tensor)) state.push_back(value);
        backward(comm.rank() == 2);
        const StepResult result = engine.step(1e-2).get();
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
        EXPECT_TRUE(engine.step(1e-2).get().taken);
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
  // Units of one size would be taken for each other where ranks gather in different orders.
  const std::string prefetch = complaint([](Communicator& comm) {
    Sequence net(4);
    ShardedOptions options = stage(3);
    options.sharding.prefetch = comm.rank() == 1 ? 2 : 1;
    Sharded engine(net, testing::context(1), comm, make_sgd(), options);
  });
  EXPECT_NE(prefetch.find("prefetch 2;"), std::string::npos) << prefetch;
}

// Parameters without elements, and of one, beside one of several.
struct Few : Module {
  Parameter none{{0}, Initializer::ones()}, one{{1}, Initializer::ones()}, several{{7}, Initializer::normal(1)};
  Variable operator()() const {
    return add(sum(square(none.variable())), add(sum(square(one.variable())), sum(square(several.variable()))));
  }
  void visit(Visitor& v) override {
    v("none", none);
    v("one", one);
    v("several", several);
  }
};

TEST(Zero, ParametersOfNoAndOfOneElementAreKeptAsTheOthersAre) {
  for (const int number : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Few net, copy;
      Sharded engine(net, context, comm, make_adamw(), stage(number)),
          other(copy, context, comm, make_adamw(), stage(number));
      const auto train = [](Sharded& trained, const Few& of) {
        trained.backward(of());
        EXPECT_TRUE(trained.step(1e-1).get().taken);
      };
      train(engine, net);
      const TensorParts state = engine.optimizer_state();
      other.load_weights(engine.weights());
      other.load_optimizer_state(state, engine.state());
      train(engine, net);
      train(other, copy);
      EXPECT_EQ(whole_values(other), whole_values(engine)) << "stage " << number;
      Tensor counted = tensor_of(context, {static_cast<double>(numbers_of(state).size())}, {1}, DType::f64);
      if (number > 0) comm.all_reduce(counted).wait();
      EXPECT_EQ(counted.item(), 2 * (0 + 1 + 7)) << "stage " << number;
    });
}

// In the second forward pass, when the order of the units is known.
TEST(Zero, AsManyUnitsAreGatheredAheadAsPrefetchSays) {
  for (const int prefetch : {0, 1, 2})
    run_ranks(2, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net;
      ShardedOptions options = stage(3);
      options.sharding.prefetch = prefetch;
      Sharded engine(net, context, comm, make_sgd(), options);
      const Tensor x = rows(context, 0, comm, 0, 1, 100, DType::f32);
      std::vector<int> whole;
      for (int pass = 0; pass < 2; ++pass) {
        const NoGrad no_grad;
        Variable y(x);
        whole.clear();
        for (const UnitLayer& layer : net.layers) {
          const UnitLayer::Scope scope(layer);
          whole.push_back(0);
          for (const auto& unit : engine.units()) whole.back() += unit->layout().values.storage()->resident() ? 1 : 0;
          y = layer(y);
        }
      }
      const int ahead[] = {std::min(prefetch, 3), std::min(prefetch, 2), std::min(prefetch, 1), 0};
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(whole[i], 1 + ahead[i]) << "unit " << i << ", prefetch " << prefetch;
    });
}

}  // namespace
}  // namespace keel
