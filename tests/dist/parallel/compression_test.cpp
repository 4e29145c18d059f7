// Laws of compressed gradients: what is sent, what is delivered, and what is left for later.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/parallel/plan.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr Compression kInt8 = {.type = Compression::Type::int8};
constexpr Compression kPowerSgd = {.type = Compression::Type::power_sgd, .rank = 3};
Compression top(double fraction) { return {.type = Compression::Type::top_k, .fraction = fraction}; }
std::vector<Compression> all_kinds() { return {kInt8, top(0.03), kPowerSgd}; }

std::string text_of(const Compression& c) { return concat(c.kind().name, ' ', c.fraction, ' ', c.rank); }

ShardedOptions options_of(int number, const Compression& compression) {
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

Variable loss_of(const UnitNet& net, const Context& context, int step, const Communicator& comm) {
  const Tensor x = rows(context, step % 3, comm, 0, 1, 1, DType::f32),
               y = rows(context, step % 3, comm, 0, 1, 77, DType::f32);
  return mse_loss(net(x), Variable(y));
}

Trained train(const Training& training) {
  Trained result;
  std::mutex mutex;
  run_ranks(training.ranks, [&](Communicator& ranks) {
    DelayedCommunicator delayed(ranks, training.delays, std::chrono::microseconds(training.delays == 0 ? 0 : 300));
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, delayed, make_sgd(), training.options);
    std::vector<double> losses;
    std::int64_t before = 0;
    for (int step = 0, good = 0; step < training.steps; ++step) {
      const bool is_bad = step == training.bad_step;
      Variable loss = loss_of(net, context, is_bad ? 2 : good++, ranks);
      losses.push_back(loss.value().item());
      for (const auto& unit : engine.units()) unit->wait_gathered();
      before = engine.data_traffic().sent();
      if (is_bad && ranks.rank() == 1)
        loss = mul(loss, Variable(kernels::full(context, loss.shape(), std::numeric_limits<double>::infinity())));
      engine.backward(loss, {.tokens = rows(context, 0, ranks, 0, 1, 1, DType::f32).dim(0)});
      EXPECT_EQ(engine.step(training.rate).get().taken, !is_bad);
    }
    for (const auto& unit : engine.units()) unit->wait_gathered();
    const std::int64_t sent = engine.data_traffic().sent() - before;
    const std::vector<double> weights = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (result.weights.empty()) result = {weights, losses, 0};
    EXPECT_EQ(weights, result.weights) << "rank " << ranks.rank();
    if (ranks.rank() == 0) result = {weights, losses, sent};
  });
  return result;
}

TEST(Compression, GivesTheSameBitsInEveryStageBucketAndSchedule) {
  for (const Compression& compression : all_kinds())
    for (const int n : {2, 3, 4}) {
      const Trained reference = train({.ranks = n, .options = options_of(0, compression)});
      EXPECT_NE(reference.weights, train({.ranks = n, .options = stage(0)}).weights);
      for (const int number : {0, 1, 2, 3}) {
        Training other{.ranks = n, .options = options_of(number, compression), .delays = 7};
        other.options.sharding.overlap = number % 2 == 0;
        other.options.sharding.bucket = other.options.sharding.first_bucket = number == 0 ? 1 : 1 << 20;
        EXPECT_EQ(train(other).weights, reference.weights)
            << text_of(compression) << ", stage " << number << ", " << n << " ranks";
      }
    }
}

TEST(Compression, OfAllNumbersIsNoneToTheBit) {
  for (const int number : {0, 2})
    for (const int n : {2, 3}) {
      const Trained plain = train({.ranks = n, .options = stage(number)});
      const Trained whole = train({.ranks = n, .options = options_of(number, top(1))});
      EXPECT_EQ(whole.weights, plain.weights) << "stage " << number << ", " << n << " ranks";
      EXPECT_EQ(whole.losses, plain.losses);
    }
}

TEST(Compression, OfOneRankAloneIsNone) {
  for (const Compression& compression : all_kinds())
    EXPECT_EQ(train({.ranks = 1, .options = options_of(2, compression)}).weights,
              train({.ranks = 1, .options = stage(2)}).weights);
}

TEST(Compression, ASkippedStepChangesNothing) {
  for (const Compression& compression : all_kinds())
    for (const int number : {0, 3}) {
      const Training good{.ranks = 3, .steps = 4, .options = options_of(number, compression)};
      for (const int bad_step : {0, 2, 4}) {
        Training bad = good;
        bad.steps = 5;
        bad.bad_step = bad_step;
        EXPECT_EQ(train(bad).weights, train(good).weights) << text_of(compression) << ", step " << bad_step;
      }
    }
}

// What is kept for later is a true gradient, so a scale that changes every two steps makes no difference.
TEST(Compression, OfAScaledLossDeliversTheSameBits) {
  for (const Compression& compression : all_kinds()) {
    const Training plain{.ranks = 3, .steps = 7, .options = options_of(2, compression)};
    Training scaled = plain;
    scaled.options.loss_scale = 1024;
    scaled.options.scaling = {.growth = 2, .backoff = 0.5, .interval = 2};
    EXPECT_EQ(train(scaled).weights, train(plain).weights) << text_of(compression);
  }
}

// What is delivered in steps, and what is left of all ranks, are all gradients.
// Acceptance check 11.
TEST(Compression, LosesNothing) {
  constexpr int kSteps = 6;
  for (const Compression& compression :
       {kInt8, top(0.01), kPowerSgd, Compression{.type = Compression::Type::power_sgd, .rank = 64}})
    for (const int n : {2, 3, 4})
      for (const int number : {0, 2}) {
        // Rate 0 keeps the weights, so that gradients are those of the engine without compression.
        const auto sums = [&](const ShardedOptions& options) {
          std::vector<double> delivered;
          std::mutex mutex;
          run_ranks(n, [&](Communicator& ranks) {
            const Context context = testing::context(1);
            UnitNet net;
            Sharded engine(net, context, ranks, make_sgd(), options);
            std::vector<double> mine;
            const auto add = [&](std::size_t at, const Tensor& numbers) {
              const std::vector<double> values = doubles(numbers);
              if (mine.size() < at + values.size()) mine.resize(at + values.size());
              for (std::size_t i = 0; i < values.size(); ++i) mine[at + i] += values[i];
            };
            for (int step = 0; step < kSteps; ++step) {
              engine.backward(loss_of(net, context, step, ranks));
              std::size_t at = 0;
              for (const auto& unit : engine.units()) {
                const auto begin = static_cast<std::size_t>(unit->shard().begin);
                add(at + begin, unit->counted(unit->own_gradient()));
                at += static_cast<std::size_t>(unit->layout().padded);
              }
              engine.step(0);
            }
            std::size_t at = 0;
            for (const auto& unit : engine.units()) {
              if (unit->compressor() != nullptr) add(at, unit->compressor()->residual());
              at += static_cast<std::size_t>(unit->layout().padded);
            }
            const std::lock_guard lock(mutex);
            delivered.resize(at);
            for (std::size_t i = 0; i < mine.size(); ++i) delivered[i] += mine[i];
          });
          return delivered;
        };
        EXPECT_LT(relative_error(sums(options_of(number, compression)), sums(stage(number))), 2e-6)
            << text_of(compression) << ", stage " << number << ", " << n << " ranks";
      }
}

// A gradient of a few examples has no more independent rows than these, so that as many columns deliver all of it.
TEST(Compression, DeliversAGradientOfLowRankWhole) {
  run_ranks(2, [&](Communicator& ranks) {
    const Context context = testing::context(1);
    const Compression wide{.type = Compression::Type::power_sgd, .rank = 8};
    UnitNet compressed_net, plain_net;
    Sharded compressed(compressed_net, context, ranks, make_sgd(), options_of(0, wide));
    Sharded plain(plain_net, context, ranks, make_sgd(), stage(0));
    const Tensor x = uniform_tensor(context, {4, kWidth}, 5 + static_cast<std::uint64_t>(ranks.rank()));
    compressed.backward(mean(compressed_net(x)));
    plain.backward(mean(plain_net(x)));
    for (std::size_t i = 0; i < plain.units().size(); ++i)
      EXPECT_LT(
          relative_error(doubles(compressed.units()[i]->own_gradient()), doubles(plain.units()[i]->own_gradient())),
          1e-5);
  });
}

// 100 steps, in which the loss falls by a fifth at least: a compressed training makes 90 % of the way of the plain one.
TEST(Compression, TrainsNearlyAsWell) {
  const auto way = [](const Trained& trained) {
    const std::vector<double>& losses = trained.losses;
    const auto mean_of_three = [](auto at) { return (at[0] + at[1] + at[2]) / 3; };  // there are three batches
    return mean_of_three(losses.begin()) - mean_of_three(losses.end() - 3);
  };
  const Trained plain = train({.ranks = 2, .steps = 100, .options = stage(1), .rate = 5});
  ASSERT_GT(way(plain), 0.2 * plain.losses.front());
  for (const Compression& compression : {kInt8, top(0.1), kPowerSgd})
    EXPECT_GT(way(train({.ranks = 2, .steps = 100, .options = options_of(1, compression), .rate = 5})),
              0.9 * way(plain))
        << text_of(compression);
}

TEST(Compression, SendsTheBytesOfItsFormula) {
  constexpr std::int64_t kNumbers = 64 * 65 + 65;
  for (const int n : {1, 2, 3, 4}) {
    UnitNet net;
    const std::int64_t padded = lay_out(net, n).front().padded, part = padded / n;
    const auto expect = [&](int number, const Compression& compression, std::int64_t bytes_of_a_unit) {
      const std::int64_t gathers = number == 0 ? 0 : (n - 1) * part * 4;
      EXPECT_EQ(train({.ranks = n, .steps = 2, .options = options_of(number, compression)}).sent,
                4 * (n == 1 ? 0 : bytes_of_a_unit + gathers))
          << text_of(compression) << ", stage " << number << ", " << n << " ranks";
    };
    const std::int64_t int8 = part + 4 * ((part + 255) / 256);
    const std::int64_t tenth = 8 * static_cast<std::int64_t>(std::ceil(0.03 * static_cast<double>(part)));
    expect(1, kInt8, (n - 1) * int8);
    expect(1, top(0.03), (n - 1) * tenth);
    // The whole sum: payloads to all, or those of a shard to one and the sum of it to all.
    expect(0, kInt8, std::min((n - 1) * n * int8, (n - 1) * (int8 + 4 * part)));
    expect(0, top(0.03), (n - 1) * n * tenth);
    expect(0, top(1), (n - 1) * 8 * part + (n - 1) * part * 4);
    // 65 x 64 by three columns, and the 65 numbers of the bias.
    const auto all_reduce = [&](std::int64_t count) {
      const std::int64_t own = keel::part({0, count}, n, 0).count();
      return 4 * (count - own + (n - 1) * own);
    };
    expect(0, kPowerSgd, all_reduce(65 * 3 + 65) + all_reduce(64 * 3));
  }
  static_assert(kNumbers == 4225);
}

// Three ranks leave what two or four take over: what all of them have not delivered stays the same.
TEST(Compression, KeepsWhatIsUndeliveredOnOtherNumbersOfRanks) {
  struct Saved {
    std::string name;
    Dims shape;
    std::vector<double> values;
  };
  const auto total = [](const std::vector<std::vector<Saved>>& ranks) {
    std::vector<double> sum;
    for (const std::vector<Saved>& saved : ranks) {
      std::size_t at = 0;
      for (const Saved& each : saved) {
        if (!each.name.starts_with("residual.")) continue;
        sum.resize(std::max(sum.size(), at + each.values.size()));
        for (const double value : each.values) sum[at++] += value;
      }
    }
    return sum;
  };
  const auto state_of = [](const Sharded& engine) {
    std::vector<Saved> saved;
    for (const TensorPart& part : engine.compression_state())
      saved.push_back({part.name, part.shape, doubles(part.values)});
    return saved;
  };
  for (const Compression& compression : all_kinds()) {
    std::vector<std::vector<Saved>> left(3);
    run_ranks(3, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
      for (int step = 0; step < 3; ++step) {
        engine.backward(loss_of(net, context, step, ranks));
        engine.step(0.5);
      }
      left[static_cast<std::size_t>(ranks.rank())] = state_of(engine);
    });
    ASSERT_GT(relative_error(total(left), std::vector<double>(total(left).size())), 0) << "something is left";
    for (const int n : {2, 3, 4}) {
      std::vector<std::vector<Saved>> taken(static_cast<std::size_t>(n));
      run_ranks(n, [&](Communicator& ranks) {
        const Context context = testing::context(1);
        UnitNet net;
        Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
        std::vector<TensorParts> states;
        for (auto r = static_cast<std::size_t>(ranks.rank()); r < left.size(); r += static_cast<std::size_t>(n)) {
          states.emplace_back();
          for (const Saved& each : left[r])
            states.back().push_back({each.name, each.shape, 0,
                                     tensor_of(context, each.values, {static_cast<std::int64_t>(each.values.size())})});
        }
        engine.load_compression_state(states);
        taken[static_cast<std::size_t>(ranks.rank())] = state_of(engine);
      });
      EXPECT_LT(relative_error(total(taken), total(left)), 1e-6) << text_of(compression) << ", " << n << " ranks";
      for (std::size_t r = 0; r < left.size() && n == 3; ++r)
        for (std::size_t i = 0; i < left[r].size(); ++i) EXPECT_EQ(taken[r][i].values, left[r][i].values);
    }
  }
}

TEST(Compression, RefusesWhatItCannotDo) {
  const auto attempt = [](const ShardedOptions& options, const Context& context) {
    run_ranks(2, [&](Communicator& ranks) {
      UnitNet net;
      Sharded(net, context, ranks, make_sgd(), options);
    });
  };
  ShardedOptions grouped = options_of(1, kInt8);
  grouped.sharding.group = 1;
  EXPECT_THROW(attempt(grouped, testing::context(1)), Error);
  ShardedOptions wide = options_of(1, kInt8);
  wide.policy = PrecisionPolicy::of(DType::f64);
  EXPECT_THROW(attempt(wide, testing::context(1)), Error);
}

}  // namespace
}  // namespace keel
