// Laws of compressed gradients among processors, and what they cost.

#include <mutex>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/compression_laws.h"
#include "tests/dist/parallel/planned_counts.h"

namespace keel {
namespace {

using namespace keel::testing;

const World kProcessors = {.name = "Processors",
                           .run = [](int n, const std::function<void(Communicator&, const Context&)>& f) {
                             run_ranks(n, [&](Communicator& ranks) { f(ranks, testing::context(1)); });
                           }};
INSTANTIATE_TEST_SUITE_P(Among, CompressionLaws, ::testing::Values(kProcessors),
                         [](const auto& info) { return info.param.name; });

// 100 steps, in which the loss falls by a fifth at least: a compressed training makes 90 % of the way of the plain one.
TEST(Compression, TrainsNearlyAsWell) {
  const auto way = [](const Trained& trained) {
    const std::vector<double>& losses = trained.losses;
    const auto mean_of_three = [](auto at) { return (at[0] + at[1] + at[2]) / 3; };  // there are three batches
    return mean_of_three(losses.begin()) - mean_of_three(losses.end() - 3);
  };
  const Trained plain = train(kProcessors, {.ranks = 2, .steps = 100, .options = stage(1), .rate = 5});
  ASSERT_GT(way(plain), 0.2 * plain.losses.front());
  for (const Compression& compression : {kInt8, top_k_of(0.1), kPowerSgd})
    EXPECT_GT(way(train(kProcessors, {.ranks = 2, .steps = 100, .options = options_of(1, compression), .rate = 5})),
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
      EXPECT_EQ(train(kProcessors, {.ranks = n, .steps = 2, .options = options_of(number, compression)}).sent,
                4 * (n == 1 ? 0 : bytes_of_a_unit + gathers))
          << text_of(compression) << ", stage " << number << ", " << n << " ranks";
    };
    const std::int64_t int8 = part + 4 * ((part + 255) / 256);
    const std::int64_t int4 = part / 256 * 128 + std::min<std::int64_t>(part % 256, 128) + 4 * ((part + 255) / 256);
    const std::int64_t tenth = 8 * static_cast<std::int64_t>(std::ceil(0.03 * static_cast<double>(part)));
    expect(1, kInt8, (n - 1) * int8);
    expect(1, kInt4, (n - 1) * int4);
    expect(1, top_k_of(0.03), (n - 1) * tenth);
    // The whole sum: payloads to all, or those of a shard to one and the sum of it to all.
    expect(0, kInt8, std::min((n - 1) * n * int8, (n - 1) * (int8 + 4 * part)));
    expect(0, top_k_of(0.03), (n - 1) * n * tenth);
    expect(0, top_k_of(1), (n - 1) * 8 * part + (n - 1) * part * 4);
    // 65 x 64 by three columns, and the 65 numbers of the bias.
    const auto all_reduce = [&](std::int64_t count) {
      const std::int64_t own = keel::part({0, count}, n, 0).count();
      return 4 * (count - own + (n - 1) * own);
    };
    expect(0, kPowerSgd, all_reduce(65 * 3 + 65) + all_reduce(64 * 3));
  }
  static_assert(kNumbers == 4225);
}

TEST(Compression, HoldsAndSendsTheBytesOfThePlan) {
  for (const Compression& compression : {Compression{}, kInt8, kInt4, top_k_of(0.03), top_k_of(0.9), kPowerSgd})
    for (const int number : {0, 2})
      for (const int micro_batches : {1, 2}) {
        ShardedOptions options = options_of(number, compression);
        options.micro_batches = micro_batches;
        std::mutex mutex;
        run_ranks(3, [&](Communicator& comm) {
          UnitNet net, planned;
          const RankPlan plan = plan_rank(lay_out(planned, 3), *make_sgd(), options, 3, comm.rank());
          Sharded engine(net, testing::context(1), comm, make_sgd(), options);
          PlannedCounts counts(plan, engine);
          const auto step = [&] {
            for (int micro = 1; micro <= micro_batches; ++micro)
              engine.backward(loss_of(net, engine.context(), 0, comm), {.last = micro == micro_batches});
            engine.step(1e-3);
            for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
          };
          counts.expect_of(step, mutex, text_of(compression));
        });
      }
}

// Nor does it ask for an empty sum of factors that are not there.
TEST(Compression, PowerSgdOfVectorsSendsThemAsTheyAre) {
  struct Vectors : Module {
    LayerNorm norm{kWidth};
    void visit(Visitor& v) override { v("norm", norm); }
  };
  run_ranks(2, [&](Communicator& direct) {
    std::vector<std::int64_t> counts;
    WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& collective) {
      if (collective.kind == CollectiveKind::all_reduce) counts.push_back(collective.count());
    });
    const Context context = testing::context(1);
    Vectors net;
    Sharded engine(net, context, comm, make_sgd(), options_of(0, kPowerSgd));
    counts.clear();
    engine.backward(mean(square(net.norm(Variable(uniform_tensor(context, {4, kWidth}, 1))))), {.weight = 4});
    EXPECT_EQ(counts, std::vector<std::int64_t>{2 * kWidth});
  });
}

// Several parameters in a unit, which begin at blocks of the optimizer's states: numbers of no parameter lie between.
TEST(Compression, AStepThatIsNotTakenLeavesNothingBetweenParameters) {
  const auto train_mlp = [](const ShardedOptions& options, int bad_step) {
    std::vector<double> weights;
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      Mlp net({36, 36, 36, 36}, ActivationKind::tanh);
      Sharded engine(net, context, ranks,
                     make_elementwise("AdamW8bit", {.settings = AdamSettings{.min_8bit_size = 256}}), options);
      EXPECT_GT(engine.units().front()->layout().segments[2].offset, 36 * 36 + 36);
      for (int step = 0, good = 0; step < 4; ++step) {
        const bool is_bad = step == bad_step;
        const auto seed = static_cast<std::uint64_t>(10 * (is_bad ? 9 : good++) + ranks.rank());
        Forward pass;
        Variable loss = mean(square(net(Variable(uniform_tensor(context, {8, 36}, seed)), pass)));
        if (is_bad) loss = scale(loss, INFINITY);
        engine.backward(loss, {.weight = 8});
        EXPECT_EQ(engine.step(1e-2).get().taken, !is_bad) << "step " << step;
      }
      const std::vector<double> all = whole_values(engine);
      if (ranks.rank() == 0) weights = all;
    });
    return weights;
  };
  for (const Compression& compression : {kInt8, kInt4, top_k_of(0.03), top_k_of(1), kPowerSgd})
    for (const int number : {0, 1, 2, 3}) {
      SCOPED_TRACE(concat(text_of(compression), ", stage ", number));
      // The first three steps of both take the same batches.
      EXPECT_EQ(train_mlp(options_of(number, compression), 1), train_mlp(options_of(number, compression), 3));
    }
}

TEST(Compression, PowerSgdTakesMatricesWhoseFactorsHaveFewerNumbers) {
  FlatBuffer layout;
  for (const Dims& shape : std::vector<Dims>{{8, 8}, {64}, {2, 100}, {3, 4, 5}, {0, 4}, {1, 50}, {100, 2}, {9, 8}})
    layout.segments.push_back({"", shape, 0, zeros(testing::context(1), shape).numel(), nullptr});
  const auto taken = [&](std::int64_t rank) {
    std::vector<std::vector<std::int64_t>> all;
    for (const LowRank& part : low_rank_parts(layout, rank))
      all.push_back({static_cast<std::int64_t>(part.segment), part.rows, part.columns, part.rank});
    return all;
  };
  using Parts = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(taken(1), (Parts{{0, 8, 8, 1}, {2, 2, 100, 1}, {3, 3, 20, 1}, {6, 100, 2, 1}, {7, 9, 8, 1}}));
  EXPECT_EQ(taken(2), (Parts{{0, 8, 8, 2}, {3, 3, 20, 2}, {7, 9, 8, 2}}));
  EXPECT_EQ(taken(4), (Parts{{7, 9, 8, 4}})) << "4 (8 + 8) are as many";
  EXPECT_EQ(taken(5), Parts{});
}

// Vectors before and behind the matrix.
TEST(Compression, PowerSgdDeliversWhatIsNoMatrixAsItIs) {
  struct Net : Module {
    LayerNorm norm{kWidth};
    Linear linear{kWidth, kWidth};
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      return linear(norm(x));
    }
    void visit(Visitor& v) override {
      v("norm", norm);
      v("linear", linear);
    }
  };
  const auto trained = [](const Compression& compression, int number) {
    std::vector<double> weights;
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      Net net;
      Sharded engine(net, context, ranks, make_sgd(), options_of(number, compression));
      const Variable x(uniform_tensor(context, {8, kWidth}, static_cast<std::uint64_t>(ranks.rank())));
      engine.backward(mean(square(net(x))), {.weight = 8});
      engine.step(0.1);
      const std::vector<double> all = whole_values(engine);
      if (ranks.rank() == 0) weights = all;
    });
    return weights;
  };
  for (const int number : {0, 1, 2, 3}) {
    const std::vector<double> plain = trained({}, number), compressed = trained(kPowerSgd, number);
    constexpr std::size_t kMatrix = kWidth * kWidth, kBefore = 2 * kWidth;
    ASSERT_EQ(plain.size(), kBefore + kMatrix + kWidth);
    double differs = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double difference = std::abs(plain[i] - compressed[i]);
      if (i >= kBefore && i < kBefore + kMatrix) differs = std::max(differs, difference);
      else EXPECT_LT(difference, 1e-6) << "element " << i << ", stage " << number;
    }
    EXPECT_GT(differs, 1e-6);
  }
}

// Matrices of different shapes, of which three examples make gradients of three independent rows.
TEST(Compression, PowerSgdKeepsTheMatricesOfAUnitApart) {
  struct Net : Module {
    Linear narrow{kWidth, 40}, wide{40, kWidth};
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      return wide(tanh(narrow(x)));
    }
    void visit(Visitor& v) override {
      v("narrow", narrow);
      v("wide", wide);
    }
  };
  const auto gradients = [](const Compression& compression) {
    std::vector<double> of_all;
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      Net net;
      Sharded engine(net, context, ranks, make_sgd(), options_of(0, compression));
      engine.backward(mean(square(net(Variable(uniform_tensor(context, {3, kWidth}, 1))))));
      if (ranks.rank() == 0) of_all = doubles(engine.units()[0]->gradient().own());
    });
    return of_all;
  };
  EXPECT_LT(relative_error(gradients({.type = Compression::Type::power_sgd, .rank = 4}), gradients({})), 1e-5);
}

TEST(Compression, TellsTheTimeThatItTookWhereThereIsAny) {
  for (const Compression& compression : {Compression{}, kInt8, kPowerSgd})
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, ranks, make_sgd(), options_of(1, compression));
      EXPECT_EQ(engine.codec_ms(), 0);
      engine.backward(loss_of(net, context, 0, ranks));
      engine.step(0.1);
      EXPECT_EQ(engine.codec_ms() > 0, compression.kind().feedback);
    });
}

TEST(Compression, RefusesWhatItCannotDo) {
  const auto attempt = [](const ShardedOptions& options, const Context& context) {
    run_ranks(2, [&](Communicator& ranks) {
      UnitNet net;
      Sharded(net, context, ranks, make_sgd(), options);
    });
  };
  ShardedOptions grouped = options_of(1, kPowerSgd);
  grouped.sharding.group = 1;
  EXPECT_THROW(attempt(grouped, testing::context(1)), Error);
  ShardedOptions wide = options_of(1, kInt8);
  wide.policy = PrecisionPolicy::of(DType::f64);
  EXPECT_THROW(attempt(wide, testing::context(1)), Error);
}

}  // namespace
}  // namespace keel
