// Groups of ranks that send codes of their gradients' sums to each other: plain inside, with error feedback across.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/compression_laws.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Split {
  int ranks, group;
  int groups() const { return ranks / group; }
};
constexpr Split kSplits[] = {{4, 2}, {6, 2}, {6, 3}, {4, 1}};

const World kThreads = {.name = "Threads",
                        .run = [](int n, const std::function<void(Communicator&, const Context&)>& f) {
                          run_ranks(n, [&](Communicator& ranks) { f(ranks, testing::context(1)); });
                        }};

std::vector<Compression> codes() { return {kInt8, kInt4, top_k_of(0.03)}; }

ShardedOptions coded(const Split& split, int number, const Compression& compression) {
  ShardedOptions options = options_of(number, compression);
  options.sharding.group = split.group;
  return options;
}

std::string place_text(const Split& split, int number, const Compression& compression) {
  return concat(split.ranks, " ranks in groups of ", split.group, ", stage ", number, ", ", text_of(compression));
}

TEST(CodedGroups, GiveTheSameBitsInEveryStageHoweverLateRanksCome) {
  for (const Split& split : kSplits)
    for (const Compression& compression : codes()) {
      const Trained reference = train(kThreads, {.ranks = split.ranks, .options = coded(split, 1, compression)});
      EXPECT_NE(reference.weights, train(kThreads, {.ranks = split.ranks, .options = coded(split, 1, {})}).weights);
      for (const int number : {2, 3}) {
        Training other{.ranks = split.ranks, .options = coded(split, number, compression), .delays = 7};
        other.options.sharding.overlap = number == 3;
        EXPECT_EQ(train(kThreads, other).weights, reference.weights) << place_text(split, number, compression);
      }
    }
}

TEST(CodedGroups, GiveTheSameBitsWhereGradientsAreReducedOneByOne) {
  const auto trained = [](int number) {
    std::vector<double> weights;
    run_ranks(4, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      ShardedOptions options = coded({4, 2}, number, kInt4);
      options.sharding.accumulation = Accumulation::each_backward;
      options.micro_batches = 2;
      Sharded engine(net, context, ranks, make_sgd(), options);
      for (int step = 0; step < 3; ++step) {
        for (int micro = 0; micro < 2; ++micro) {
          const Tensor x = rows(context, step, ranks, micro, 2, 1, DType::f32);
          engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro == 1});
        }
        EXPECT_TRUE(engine.step(0.5).get().taken);
      }
      const std::vector<double> all = whole_values(engine);
      if (ranks.rank() == 3) weights = all;
    });
    return weights;
  };
  const std::vector<double> reference = trained(1);
  for (const int number : {2, 3}) EXPECT_EQ(trained(number), reference) << "stage " << number;
}

TEST(CodedGroups, OfAllNumbersAreGroupsWithoutCodesToTheBit) {
  for (const Split& split : kSplits) {
    const Trained plain = train(kThreads, {.ranks = split.ranks, .options = coded(split, 2, {})});
    EXPECT_EQ(train(kThreads, {.ranks = split.ranks, .options = coded(split, 2, top_k_of(1))}).weights, plain.weights)
        << split.ranks << " ranks in groups of " << split.group;
  }
}

// Across groups go the payloads of a rank's shard, to each of the others.
TEST(CodedGroups, SendTheBytesOfTheFormulaAcross) {
  for (const Split& split : kSplits)
    for (const Compression& compression : codes())
      for (const int number : {1, 2, 3}) {
        std::vector<int> nodes;
        for (int rank = 0; rank < split.ranks; ++rank) nodes.push_back(rank / split.group);
        run_ranks(split.ranks,
                  [&](Communicator& ranks) {
                    const Context context = testing::context(1);
                    UnitNet net, planned;
                    const ShardedOptions options = coded(split, number, compression);
                    Sharded engine(net, context, ranks, make_sgd(), options);
                    const RankPlan plan =
                        plan_rank(lay_out(planned, split.group), *make_sgd(), options, split.ranks, ranks.rank());
                    Traffic before;
                    for (int step = 0; step < 2; ++step) {
                      before = engine.data_traffic();
                      engine.backward(loss_of(net, context, step, ranks));
                      engine.step(0.1);
                      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
                    }
                    std::int64_t across = 0;
                    for (const auto& unit : engine.units())
                      across += (split.groups() - 1) * codec_of(compression).bytes(unit->shard().count());
                    EXPECT_EQ(engine.data_traffic().between_nodes - before.between_nodes, across)
                        << place_text(split, number, compression);
                    EXPECT_EQ(engine.data_traffic().sent() - before.sent(), plan.traffic.sent());
                    std::int64_t kept = 0;
                    for (const auto& unit : engine.units())
                      kept += static_cast<std::int64_t>(unit->reducer()->feedback()->residual().bytes());
                    EXPECT_EQ(kept, plan.memory.undelivered);
                  },
                  {.nodes = nodes});
      }
}

// What was delivered, and what the ranks of the first and of the other groups keep, are all gradients.
TEST(CodedGroups, LoseNothing) {
  const auto sums = [](const ShardedOptions& options) {
    std::vector<double> delivered;
    std::mutex mutex;
    run_ranks(4, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, ranks, make_sgd(), options);
      std::vector<double> mine;
      const auto add = [&](std::int64_t at, const Tensor& numbers) {
        const std::vector<double> values = doubles(numbers);
        mine.resize(std::max(mine.size(), static_cast<std::size_t>(at) + values.size()));
        for (std::size_t i = 0; i < values.size(); ++i) mine[static_cast<std::size_t>(at) + i] += values[i];
      };
      for (int step = 0; step < 6; ++step) {
        engine.backward(loss_of(net, context, step, ranks));
        std::int64_t at = 0;
        for (const auto& unit : engine.units()) {
          if (ranks.rank() < 2) add(at + unit->shard().begin, unit->counted(unit->gradient().own()));
          at += unit->layout().padded;
        }
        engine.step(0);
      }
      std::int64_t at = 0;
      for (const auto& unit : engine.units()) {
        if (const ErrorFeedback* kept = unit->reducer()->feedback()) add(at + unit->shard().begin, kept->residual());
        at += unit->layout().padded;
      }
      const std::lock_guard lock(mutex);
      delivered.resize(static_cast<std::size_t>(at));
      for (std::size_t i = 0; i < mine.size(); ++i) delivered[i] += mine[i];
    });
    return delivered;
  };
  for (const int number : {1, 3}) {
    const std::vector<double> expected = sums(coded({4, 2}, number, {}));
    for (const Compression& compression : codes())
      EXPECT_LT(relative_error(sums(coded({4, 2}, number, compression)), expected), 2e-6)
          << place_text({4, 2}, number, compression);
  }
}

TEST(CodedGroups, AStepThatIsNotTakenChangesNothing) {
  for (const Compression& compression : codes())
    for (const int number : {1, 3}) {
      const Training good{.ranks = 4, .steps = 4, .options = coded({4, 2}, number, compression)};
      const std::vector<double> expected = train(kThreads, good).weights;
      for (const int bad_step : {0, 2, 4}) {
        Training bad = good;
        bad.steps = 5;
        bad.bad_step = bad_step;
        EXPECT_EQ(train(kThreads, bad).weights, expected) << place_text({4, 2}, number, compression);
      }
    }
}

TEST(CodedGroups, GoOnFromTheirStateAsIfTheyHadNeverStopped) {
  for (const Compression& compression : codes())
    run_ranks(4, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net, copy;
      Sharded engine(net, context, ranks, make_sgd(), coded({4, 2}, 2, compression));
      Sharded other(copy, context, ranks, make_sgd(), coded({4, 2}, 2, compression));
      EXPECT_EQ(engine.residual_place().number, ranks.rank() / 2);
      EXPECT_EQ(engine.residual_place().count, 2);
      expect_to_go_on(engine, net, other, copy, context, ranks, text_of(compression));
    });
}

// A group takes over what ranks, each with a whole residual, have not delivered: each of its ranks its own part.
TEST(CodedGroups, TakeOverWholeResiduals) {
  run_ranks(4, [](Communicator& ranks) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, ranks, make_sgd(), coded({4, 2}, 1, kInt8));
    TensorParts whole;
    for (const TensorPart& part : engine.compression_state())
      whole.push_back({part.name, part.shape, 0, kernels::full(context, {product(part.shape)}, 0.5)});
    const std::vector<TensorParts> states = {whole, whole};
    engine.load_compression_state(states);
    for (const double value : numbers_of(engine.compression_state())) EXPECT_EQ(value, 1);
  });
}

TEST(CodedGroups, AreRefusedWhereNobodyWouldKeepWhatIsLeftOut) {
  const auto said = [](const ShardedOptions& options) {
    try {
      run_ranks(4, [&](Communicator& ranks) {
        UnitNet net;
        Sharded engine(net, testing::context(1), ranks, make_sgd(), options);
      });
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  for (const Compression& compression : {kPowerSgd, Compression{.type = Compression::Type::qgz}})
    EXPECT_NE(said(coded({4, 2}, 1, compression)).find("codes of int8, int4 or topk"), std::string::npos)
        << text_of(compression);
}

}  // namespace
}  // namespace keel
