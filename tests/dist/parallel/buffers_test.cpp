// Buffers in the engine: what a step makes of observations, in every stage, on 1 to 4 ranks.

#include "keel/dist/parallel/buffer_updates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "keel/nn/batch_norm.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using Numbers = std::vector<double>;

constexpr std::int64_t kChannels = 6, kMicroRows = 2;
constexpr int kNormedMicros = 12;  // of all ranks

struct NormedLayer : Module {
  Linear linear{kChannels, kChannels};
  BatchNorm norm{kChannels};
  Variable forward(const Variable& x, Forward& pass) const {
    const Scope scope(*this);
    return tanh(norm(linear(x), pass));
  }
  void visit(Visitor& v) override {
    v("linear", linear);
    v("norm", norm);
  }
  bool is_unit() const override { return true; }
};

struct NormedNet : Module {
  std::vector<NormedLayer> layers = std::vector<NormedLayer>(2);
  Variable forward(const Variable& x, Forward& pass) const {
    return layers[1].forward(layers[0].forward(x, pass), pass);
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

Tensor batch_of(const Context& context, int step, int micro) {
  return uniform_tensor(context, {kMicroRows, kChannels}, static_cast<std::uint64_t>(step * kNormedMicros + micro + 1));
}

struct Normed {
  Normed(Communicator& ranks, ShardedOptions options, std::unique_ptr<const Optimizer> optimizer = make_adamw())
      : ranks(ranks), engine(net, testing::context(1), ranks, std::move(optimizer), [&] {
          options.micro_batches = kNormedMicros / ranks.size();
          return options;
        }()) {}
  // A factor of infinity makes a step that is not taken.
  bool step(int number, double lr, double factor = 1) {
    compute(number, factor);
    return engine.step(lr).get().taken;
  }
  StepResult search(int number, double lr) {
    return engine.step([&] { return compute(number); }, lr).get();
  }
  // The mean loss of this rank's micro-batches, whose gradients are then there.
  double compute(int number, double factor = 1) {
    const int each = kNormedMicros / ranks.size();
    double sum = 0;
    for (int micro = 0; micro < each; ++micro) {
      Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
      const Variable x(batch_of(engine.context(), number, ranks.rank() * each + micro));
      const Variable loss = scale(mean(square(net.forward(x, pass))), factor);
      engine.backward(loss, {.weight = kMicroRows, .last = micro + 1 == each});
      sum += loss.value().item();
    }
    return sum / each;
  }
  Numbers buffers() {
    Numbers all;
    for_each_buffer(net, [&](const std::string&, Buffer& buffer) {
      for (const double each : doubles(buffer.value())) all.push_back(each);
    });
    return all;
  }

  Communicator& ranks;
  NormedNet net;
  Sharded engine;
};

// The buffers after some steps, which all ranks have to the bit, and the weights.
struct NormedOutcome {
  Numbers buffers, weights;
};
enum class Rule { adamw, sgd };

NormedOutcome train_normed(int ranks, const ShardedOptions& options, double lr, Rule rule = Rule::adamw) {
  NormedOutcome outcome;
  std::mutex mutex;
  std::vector<Numbers> all;
  run_ranks(ranks, [&](Communicator& comm) {
    Normed normed(comm, options, rule == Rule::sgd ? make_sgd() : make_adamw());
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(normed.step(step, lr));
    const Numbers weights = whole_values(normed.engine);
    const std::lock_guard lock(mutex);
    all.push_back(normed.buffers());
    if (comm.rank() == 0) outcome.weights = weights;
  });
  for (const Numbers& each : all) EXPECT_EQ(each, all.front());
  outcome.buffers = all.front();
  return outcome;
}

TEST(EngineBuffers, HaveTheSameBitsInEveryStageAndInGroups) {
  for (const int ranks : {1, 2, 3, 4}) {
    const NormedOutcome whole = train_normed(ranks, stage(0), 1e-2);
    for (const int number : {1, 2, 3}) {
      const NormedOutcome sharded = train_normed(ranks, stage(number), 1e-2);
      EXPECT_EQ(sharded.buffers, whole.buffers) << ranks << " ranks, stage " << number;
      EXPECT_EQ(sharded.weights, whole.weights) << ranks << " ranks, stage " << number;
    }
    if (ranks != 4) continue;
    ShardedOptions hybrid = stage(3);
    hybrid.sharding.group = 2;
    EXPECT_EQ(train_normed(4, hybrid, 0).buffers, train_normed(4, stage(0), 0).buffers);
    // Groups add gradients in another order, so that the weights are not the same. By SGD, since the gradient of a bias
    // before a norm is rounding alone, of which AdamW makes a whole step.
    const NormedOutcome grouped = train_normed(4, hybrid, 1e-2, Rule::sgd),
                        by_sgd = train_normed(4, stage(0), 1e-2, Rule::sgd);
    EXPECT_LT(relative_error(grouped.buffers, by_sgd.buffers), 1e-5);
    EXPECT_LT(relative_error(grouped.weights, by_sgd.weights), 1e-5);
    hybrid.sharding.stage = 1;
    EXPECT_EQ(train_normed(4, hybrid, 1e-2, Rule::sgd).buffers, grouped.buffers);
  }
}

// With weights that stay, the first layer's statistics are a function of the data.
TEST(EngineBuffers, AreTheMovingAveragesOfAllMicroBatchesAtAnyNumberOfRanks) {
  Numbers mean(kChannels, 0), variance(kChannels, 1);
  run_ranks(1, [&](Communicator& comm) {
    Normed normed(comm, stage(0));
    const Numbers weight = doubles(normed.net.layers[0].linear.weight.value()),
                  bias = doubles(normed.net.layers[0].linear.bias.value());
    for (int step = 0; step < 3; ++step)
      for (std::size_t c = 0; c < kChannels; ++c) {
        double means = 0, variances = 0;
        for (int micro = 0; micro < kNormedMicros; ++micro) {
          const Numbers x = doubles(batch_of(normed.engine.context(), step, micro));
          double out[kMicroRows];
          for (std::size_t row = 0; row < kMicroRows; ++row) {
            out[row] = bias[c];
            for (std::size_t i = 0; i < kChannels; ++i) out[row] += weight[c * kChannels + i] * x[row * kChannels + i];
          }
          means += (out[0] + out[1]) / 2 / kNormedMicros;
          variances += std::pow(out[0] - out[1], 2) / 2 / kNormedMicros;
        }
        mean[c] += 0.1 * (means - mean[c]);
        variance[c] += 0.1 * (variances - variance[c]);
      }
  });
  for (const int ranks : {1, 2, 3, 4}) {
    const Numbers buffers = train_normed(ranks, stage(3), 0).buffers;
    const Numbers means(buffers.begin(), buffers.begin() + kChannels),
        variances(buffers.begin() + kChannels, buffers.begin() + 2 * kChannels);
    EXPECT_LT(relative_error(means, mean), 1e-6) << ranks;
    EXPECT_LT(relative_error(variances, variance), 1e-6) << ranks;
  }
}

// Later evaluations see other weights, and observe nothing.
TEST(EngineBuffers, OfAClosureTakeWhatItsFirstEvaluationSees) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int number : {0, 3})
      run_ranks(ranks, [&](Communicator& comm) {
        Normed searching(comm, stage(number), make_lbfgs({.max_iterations = 3})), stepping(comm, stage(number));
        const StepResult result = searching.search(0, 0.5);
        EXPECT_TRUE(result.taken && stepping.step(0, 1e-2));
        EXPECT_GT(result.evaluations, 1);
        EXPECT_EQ(searching.buffers(), stepping.buffers()) << ranks << " ranks, stage " << number;
        // The next step observes again.
        const Numbers before = searching.buffers();
        searching.search(1, 0.5);
        EXPECT_NE(searching.buffers(), before);
      });
}

TEST(EngineBuffers, AreAsBeforeOnAllRanksWhereOneFailsBetweenForwardAndStep) {
  for (const int number : {0, 3}) {
    std::mutex mutex;
    std::vector<bool> same;
    const std::string told = error_of([&] {
      run_ranks(3, [&](Communicator& comm) {
        Normed normed(comm, stage(number));
        EXPECT_TRUE(normed.step(0, 1e-2));
        const Numbers before = normed.buffers();
        const auto fail = [&] {
          normed.compute(1);
          if (comm.rank() == 1) throw Error("the hose is torn");
          normed.engine.step(1e-2).get();
        };
        EXPECT_THROW(fail(), Error);
        const std::lock_guard lock(mutex);
        same.push_back(normed.buffers() == before);
        if (comm.rank() == 1) throw Error("the hose is torn");
      });
    });
    EXPECT_EQ(told, "the hose is torn");
    EXPECT_EQ(same, std::vector<bool>(3, true)) << "stage " << number;
  }
}

// One value alone that one rank has seen is the mean of all; a buffer of which nobody has seen one stays.
TEST(EngineBuffers, MoveByASingleValueAndNotByNone) {
  struct Watching : Module {
    Linear linear{2, 2};
    Buffer seen = Buffer::moving_average({2}, 0.25, 8), unseen = Buffer::moving_average({2}, 0.25, 8);
    void visit(Visitor& v) override {
      v("linear", linear);
      v("seen", seen);
      v("unseen", unseen);
    }
  };
  run_ranks(2, [](Communicator& comm) {
    const Context context = testing::context(1);
    Watching net;
    Sharded engine(net, context, comm, make_sgd());
    const Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
    if (comm.rank() == 1) net.seen.observe(pass, tensor_of(context, {4, -8}, {2}), 1);
    engine.backward(mean(net.linear(Variable(uniform_tensor(context, {3, 2}, 1)))));
    EXPECT_TRUE(engine.step(1).get().taken);
    EXPECT_EQ(doubles(net.seen.value()), (Numbers{7, 4}));
    EXPECT_EQ(doubles(net.unseen.value()), (Numbers{8, 8}));
  });
}

TEST(EngineBuffers, StayInAStepThatIsNotTaken) {
  for (const int ranks : {1, 3})
    run_ranks(ranks, [](Communicator& comm) {
      Normed normed(comm, stage(2)), untouched(comm, stage(2));
      EXPECT_TRUE(normed.step(0, 1e-2) && untouched.step(0, 1e-2));
      const Numbers before = normed.buffers();
      EXPECT_FALSE(normed.step(1, 1e-2, std::numeric_limits<double>::infinity()));
      EXPECT_EQ(normed.buffers(), before);
      // Nothing of it is left for the next step.
      EXPECT_TRUE(normed.step(2, 1e-2) && untouched.step(2, 1e-2));
      EXPECT_EQ(normed.buffers(), untouched.buffers());
      EXPECT_NE(normed.buffers(), before);
    });
}

}  // namespace
}  // namespace keel
