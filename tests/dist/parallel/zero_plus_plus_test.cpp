// ZeRO++: weights that are gathered as codes (qwZ), secondary shards (hpZ), and gradients that travel as codes in two
// steps (qgZ).

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/compression_laws.h"
#include "tests/dist/parallel/planned_counts.h"

namespace keel {
namespace {

using namespace keel::testing;

struct CodedCase {
  const char* name;
  void (*set)(ShardedOptions&);
};
void PrintTo(const CodedCase& kind, std::ostream* out) { *out << kind.name; }  // NOLINT(readability-identifier-naming)

void code_weights(ShardedOptions& o) { o.sharding.weight_code = WeightCode::int8; }
void code_gradients_finely(ShardedOptions& o) {
  o.compression = {.type = Compression::Type::qgz, .bits = Compression::Bits::eight};
}
void code_gradients(ShardedOptions& o) { o.compression = {.type = Compression::Type::qgz}; }
void keep_secondary(ShardedOptions& o) { o.sharding.secondary = true; }

constexpr CodedCase kCodedCases[] = {
    {"WeightsAsInt8", code_weights},
    {"WeightsAsInt4", [](ShardedOptions& o) { o.sharding.weight_code = WeightCode::int4; }},
    {"GradientsInTwoSteps", code_gradients},
    {"GradientsOf8Bits", code_gradients_finely},
    {"All", [](ShardedOptions& o) {
       code_weights(o);
       code_gradients(o);
       keep_secondary(o);
     }}};

struct NodeShape {
  int ranks, subgroup;
};

struct CodedOutcome {
  std::vector<double> weights, exact;  // those that are computed with, and those of the optimizer
  std::int64_t sent = 0, across = 0;   // bytes of the last step, and those of them that went to another node
};

// Two micro-batches a step, so that stage 3 gathers a unit four times.
CodedOutcome trained_in_codes(const NodeShape& shape, ShardedOptions options, DType dtype, std::uint64_t delays = 0,
                              int steps = 3) {
  options.policy = PrecisionPolicy::of(dtype);
  options.sharding.subgroup = shape.subgroup;
  options.micro_batches = 2;
  options.clip = 1;
  std::vector<int> nodes;
  for (int r = 0; r < shape.ranks; ++r) nodes.push_back(shape.subgroup == 0 ? 0 : r / shape.subgroup);
  CodedOutcome outcome;
  std::mutex mutex;
  const auto run = [&](Communicator& direct) {
    DelayedCommunicator comm(direct, delays, std::chrono::microseconds(delays == 0 ? 0 : 300));
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, comm, make_adamw(), options);
    Traffic before;
    for (int step = 0; step < steps; ++step) {
      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
      before = engine.data_traffic();
      for (int micro = 0; micro < 2; ++micro) {
        const Tensor x = rows(context, step, comm, micro, 2, 100, dtype);
        const Tensor y = rows(context, step, comm, micro, 2, 900, dtype);
        engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0), .last = micro == 1});
      }
      EXPECT_TRUE(engine.step(1e-2).get().taken);
    }
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
    const Traffic after = engine.data_traffic();
    const std::vector<double> weights = whole_values(engine);
    std::vector<double> exact;
    for (const auto& unit : engine.units())
      for (const double value : doubles(unit->counted(unit->parameters().own_weights()))) exact.push_back(value);
    const std::lock_guard lock(mutex);
    if (outcome.weights.empty()) outcome.weights = weights;
    EXPECT_TRUE(outcome.weights == weights) << "rank " << comm.rank();
    if (comm.rank() == 0)
      outcome = {weights, exact, after.sent() - before.sent(), after.between_nodes - before.between_nodes};
  };
  run_ranks(shape.ranks, run, {.nodes = nodes});
  return outcome;
}

struct NodeCase {
  NodeShape shape;
  DType dtype;
};
constexpr NodeCase kNodeCases[] = {
    {{2, 2}, DType::f32}, {{3, 1}, DType::bf16}, {{4, 2}, DType::f32}, {{4, 4}, DType::bf16}, {{6, 3}, DType::bf16}};

struct ZeroPlusPlus : ::testing::TestWithParam<CodedCase> {};
INSTANTIATE_TEST_SUITE_P(Of, ZeroPlusPlus, ::testing::ValuesIn(kCodedCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ZeroPlusPlus, GivesTheSameBitsInEveryStageAndSchedule) {
  for (const NodeCase& each : kNodeCases) {
    const NodeShape shape = each.shape;
    const DType dtype = each.dtype;
    const auto weights_of = [&](int number, std::uint64_t delays) {
      ShardedOptions options = stage(number);
      GetParam().set(options);
      options.sharding.overlap = number != 2;
      options.sharding.prefetch = number == 3 && delays > 0 ? 2 : 1;
      return trained_in_codes(shape, options, dtype, delays);
    };
    const CodedOutcome reference = weights_of(0, 0);
    EXPECT_FALSE(reference.weights == trained_in_codes(shape, stage(0), dtype).weights) << "codes change nothing";
    for (const int number : {0, 1, 2, 3}) {
      const CodedOutcome other = weights_of(number, 5);
      EXPECT_TRUE(other.weights == reference.weights)
          << shape.ranks << " ranks, " << shape.subgroup << " a node, stage " << number << ", " << dtype;
      EXPECT_TRUE(other.exact == reference.exact) << "the optimizer's own";
    }
  }
}

TEST_P(ZeroPlusPlus, OfOneRankAloneIsNothing) {
  ShardedOptions options = stage(3);
  GetParam().set(options);
  EXPECT_TRUE(trained_in_codes({1, 1}, options, DType::bf16).weights ==
              trained_in_codes({1, 1}, stage(3), DType::bf16).weights);
}

TEST_P(ZeroPlusPlus, ASkippedStepChangesNothing) {
  const World world{.name = "Processors", .run = [](int n, const auto& f) {
                      run_ranks(n, [&](Communicator& ranks) { f(ranks, testing::context(1)); });
                    }};
  for (const int number : {0, 3}) {
    Training good{.ranks = 4, .steps = 3, .options = stage(number)};
    GetParam().set(good.options);
    good.options.sharding.subgroup = 2;
    Training bad = good;
    bad.steps = 4;
    bad.bad_step = 1;
    EXPECT_TRUE(train(world, bad).weights == train(world, good).weights) << "stage " << number;
  }
}

// Weights that are computed with are the nearest multiples, in blocks of 256 from the beginning of each shard.
TEST(CodedWeights, AreHalfAScaleFromTheOptimizersOwn) {
  for (const WeightCode code : {WeightCode::int8, WeightCode::int4})
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      ShardedOptions options = stage(0);
      options.sharding.weight_code = code;
      const double largest = code == WeightCode::int8 ? 127 : 7;
      Sharded engine(net, context, ranks, make_adamw(), options);
      engine.backward(loss_of(net, context, 0, ranks));
      engine.step(1e-2);
      for (const auto& unit : engine.units()) {
        const std::vector<double> own = doubles(unit->parameters().own_weights());
        const std::vector<double> used = doubles(unit->layout().values);
        const std::size_t shard = own.size() / 2;
        for (std::size_t begin = 0; begin < own.size(); begin += shard)
          for (std::size_t block = begin; block < begin + shard; block += 256) {
            const std::size_t end = std::min(block + 256, begin + shard);
            double scale = 0;
            for (std::size_t i = block; i < end; ++i) scale = std::max(scale, std::abs(own[i]) / largest);
            for (std::size_t i = block; i < end; ++i)
              ASSERT_LE(std::abs(own[i] - used[i]), scale / 2 * (1 + 1e-5)) << i;
          }
      }
    });
}

TEST(SecondaryShards, ChangeNoBitAndSendNothingBetweenNodesAfterTheFirstGather) {
  for (const NodeShape& shape : {NodeShape{4, 2}, NodeShape{6, 3}}) {
    ShardedOptions plain = stage(3), secondary = plain;
    keep_secondary(secondary);
    const CodedOutcome without = trained_in_codes(shape, plain, DType::bf16),
                       with = trained_in_codes(shape, secondary, DType::bf16);
    EXPECT_TRUE(with.weights == without.weights);
    // Gathers of a step: two of the root, and four of each other unit. All but the first stay inside.
    std::int64_t first = 0, all = 0, reductions = 0;
    UnitNet net;
    const std::int64_t peers = shape.ranks - shape.subgroup;
    for (const FlatBuffer& layout : lay_out(net, shape.ranks)) {
      const std::int64_t shard = 2 * layout.padded / shape.ranks;
      first += peers * shard;
      all += peers * shard * (layout.unit.empty() ? 2 : 4);
      reductions += peers * shard;
    }
    EXPECT_EQ(without.across, all + reductions);
    EXPECT_EQ(with.across, first + reductions);
  }
}

TEST(TwoSteps, SendTheirBytesByFormula) {
  for (const NodeShape& shape : {NodeShape{4, 2}, NodeShape{6, 3}, NodeShape{6, 2}}) {
    ShardedOptions options = stage(2);
    code_gradients(options);
    const CodedOutcome outcome = trained_in_codes(shape, options, DType::f32);
    UnitNet net;
    std::int64_t inside = 0, across = 0, gathers = 0, gathered_across = 0;
    const int nodes = shape.ranks / shape.subgroup;
    for (const FlatBuffer& layout : lay_out(net, shape.ranks)) {
      const std::int64_t part = layout.padded / shape.ranks;
      const std::int64_t code = Codec{.kind = Codec::Kind::int4}.bytes(part);
      inside += (shape.subgroup - 1) * nodes * code;
      across += (nodes - 1) * code;
      gathers += (shape.ranks - 1) * 4 * part;
      gathered_across += (shape.ranks - shape.subgroup) * 4 * part;
    }
    EXPECT_EQ(outcome.sent, inside + across + gathers);
    EXPECT_EQ(outcome.across, across + gathered_across);
  }
}

TEST(TwoSteps, HoldTheBytesOfThePlan) {
  for (const NodeShape& shape : {NodeShape{4, 2}, NodeShape{6, 3}, NodeShape{6, 2}, NodeShape{2, 1}})
    for (const auto& set : {code_gradients, code_gradients_finely}) {
      ShardedOptions options = stage(2);
      set(options);
      options.sharding.subgroup = shape.subgroup;
      std::mutex mutex;
      run_ranks(shape.ranks, [&](Communicator& comm) {
        UnitNet net, planned;
        const RankPlan plan = plan_rank(lay_out(planned, shape.ranks), *make_sgd(), options, shape.ranks, comm.rank());
        Sharded engine(net, testing::context(1), comm, make_sgd(), options);
        PlannedCounts counts(plan, engine);
        const auto step = [&] {
          engine.backward(loss_of(net, engine.context(), 0, comm));
          engine.step(1e-3);
          for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
        };
        counts.expect_of(step, mutex, concat("subgroups of ", shape.subgroup));
      });
    }
}

TEST(TwoSteps, AddUpTheGradientsOfAllRanks) {
  const auto gradients = [](const ShardedOptions& options) {
    std::vector<double> all;
    run_ranks(4, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      UnitNet net;
      Sharded engine(net, context, ranks, make_sgd(), options);
      engine.backward(loss_of(net, context, 0, ranks));
      if (ranks.rank() > 0) return;
      for (const auto& unit : engine.units())
        for (const double value : doubles(unit->gradient().own())) all.push_back(value);
    });
    return all;
  };
  ShardedOptions coded = stage(0);
  code_gradients(coded);
  const std::vector<double> exact = gradients(stage(0));
  for (const int subgroup : {0, 1, 2}) {
    coded.sharding.subgroup = subgroup;
    // Each of two roundings to 15 levels is a few percent of a typical number off.
    EXPECT_LT(relative_error(gradients(coded), exact), 0.2) << subgroup;
    ShardedOptions fine = coded;
    code_gradients_finely(fine);
    EXPECT_LT(relative_error(gradients(fine), exact), 0.01) << subgroup;
  }
}

TEST(Subgroups, ThatDoNotDivideTheRanksAreRefused) {
  ShardedOptions options = stage(3);
  options.sharding.subgroup = 2;
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& ranks) {
                           UnitNet net;
                           Sharded(net, testing::context(1), ranks, make_sgd(), options);
                         }),
               Error);
}

}  // namespace
}  // namespace keel
