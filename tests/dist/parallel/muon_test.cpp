// Muon on matrices of which each rank has a part: the same bits for every stage and number of ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/kernels/elementwise.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Matrices of several shapes, one of which is three, in units of their own; a head and a table in the root.
struct PackedUnit : Module {
  Linear packed{kWidth, 40}, out{24, kWidth};
  PackedUnit() { packed.parts = {{"q", 24}, {"k", 8}, {"v", 8}}; }
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    return out(tanh(slice(packed(x), 1, 0, 24)));
  }
  void visit(Visitor& v) override {
    v("packed", packed);
    v("out", out);
  }
  bool is_unit() const override { return true; }
};

struct MatrixNet : Module {
  Embedding table{20, kWidth};
  std::vector<PackedUnit> units = std::vector<PackedUnit>(2);
  Linear head{kWidth, 3};
  MatrixNet() { head.is_head = true; }
  Variable operator()(const Tensor& ids) const {
    const Scope scope(*this);
    Variable y = table(ids);
    for (const PackedUnit& unit : units) y = unit(y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("table", table);
    v("units", units);
    v("head", head);
  }
};

std::unique_ptr<Optimizer> muon(const MuonSettings& settings = {}) {
  return make_elementwise("Muon", {.settings = settings, .weight_decay = 0.1});
}

struct MuonRun {
  int ranks = 1, stage = 0, first = 0, last = 3, micro_batches = 1;
  bool everybody_has_rows = false;  // otherwise rank 0 alone, so that gradients do not depend on the number of ranks
  DType dtype = DType::f32;
  MuonSettings settings = {};
  std::function<void(ShardedOptions&)> set = [](ShardedOptions&) {};
};

// The parts of all ranks, and what a checkpoint would hold.
struct MuonEnd {
  std::map<std::string, std::vector<double>> numbers;
  TensorParts weights, state;
  StepState steps;
};

void add_to(MuonEnd& end, const TensorParts& parts, TensorParts* saved) {
  for (const TensorPart& part : parts) {
    std::vector<double>& numbers = end.numbers[part.name];
    numbers.resize(static_cast<std::size_t>(product(part.shape)));
    if (part.numel() == 0) continue;
    const std::vector<double> values = doubles(part.values);
    std::copy(values.begin(), values.end(), numbers.begin() + part.begin);
    saved->push_back(part);
    saved->back().values = kernels::clone(part.values);
  }
}

void muon_step(Sharded& engine, const MatrixNet& net, const MuonRun& run, int step) {
  constexpr std::int64_t kRows = 24;
  for (int micro = 0; micro < run.micro_batches; ++micro) {
    const Span all = part({0, kRows}, run.micro_batches, micro);
    const Span mine = run.everybody_has_rows ? part(all, engine.size(), engine.rank()) : all;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(mine.count()));
    std::iota(ids.begin(), ids.end(), mine.begin + step);
    for (std::int64_t& id : ids) id = id * 7 % 20;
    const Variable wanted(uniform_tensor(engine.context(), {kRows, 3}, 50 + static_cast<std::uint64_t>(step),
                                         engine.options().policy.parameter)
                              .slice(0, mine.begin, mine.end));
    const Tensor batch = from_values(engine.context(), ids, {mine.count()});
    const bool counts = run.everybody_has_rows || engine.rank() == 0;
    engine.backward(mse_loss(net(batch), wanted),
                    {.weight = counts ? mine.count() : 0, .last = micro + 1 == run.micro_batches});
  }
}

MuonEnd train_muon(const MuonRun& run, const MuonEnd* from = nullptr) {
  MuonEnd end;
  std::mutex mutex;
  run_ranks(run.ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    MatrixNet net;
    ShardedOptions options = stage(run.stage);
    options.policy = PrecisionPolicy::of(run.dtype);
    options.micro_batches = run.micro_batches;
    run.set(options);
    Sharded engine(net, context, comm, muon(run.settings), options);
    if (from != nullptr) {
      engine.load_weights(from->weights);
      engine.load_optimizer_state(from->state, from->steps);
    }
    for (int step = run.first; step < run.last; ++step) {
      muon_step(engine, net, run, step);
      EXPECT_TRUE(engine.step(1e-2 / (1 + step)).get().taken);
    }
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();  // before the lock: others send
    const TensorParts weights = engine.weights(), state = engine.optimizer_state();
    const StepState steps = engine.state();
    const std::lock_guard lock(mutex);
    if (!engine.holds_parts()) return;
    add_to(end, weights, &end.weights);
    add_to(end, state, &end.state);
    end.steps = steps;
  });
  return end;
}

TEST(Muon, KeepsMomentumOfHiddenMatricesAndAdamWsMeansOfTheRest) {
  const MuonEnd end = train_muon({.last = 1});
  for (const char* name : {"momentum.units.0.packed.weight", "momentum.units.1.out.weight", "m.units.0.packed.bias",
                           "v.units.0.packed.bias", "m.table.weight", "m.head.weight", "v.head.bias"})
    EXPECT_TRUE(end.numbers.contains(name)) << name;
  for (const char* name : {"m.units.0.packed.weight", "momentum.table.weight", "momentum.head.weight"})
    EXPECT_FALSE(end.numbers.contains(name)) << name;
}

TEST(Muon, GivesTheSameBitsInEveryStageAndByAnyNumberOfRanks) {
  for (const MuonProducts products : {MuonProducts::bf16, MuonProducts::fp32}) {
    const MuonSettings settings{.products = products};
    const MuonEnd alone = train_muon({.settings = settings});
    for (const int ranks : {1, 2, 3, 4})
      for (const int number : {0, 1, 2, 3})
        EXPECT_EQ(train_muon({.ranks = ranks, .stage = number, .settings = settings}).numbers, alone.numbers)
            << ranks << " ranks, stage " << number;
  }
}

TEST(Muon, GivesTheSameBitsWhereEveryoneTransformsWhatItHasAPartOf) {
  const auto everyone = [](ShardedOptions& options) { options.sharding.matrices = MatrixWork::everyone; };
  const MuonEnd alone = train_muon({});
  for (const int ranks : {1, 2, 3, 4})
    for (const int number : {0, 1, 2, 3})
      EXPECT_EQ(train_muon({.ranks = ranks, .stage = number, .set = everyone}).numbers, alone.numbers)
          << ranks << " ranks, stage " << number;
}

// One exchange in place of two, or none where all ranks have everything; bytes as planned.
TEST(Muon, SendsNoResultsWhereEveryoneTransforms) {
  for (const int number : {0, 1, 3})
    for (const MatrixWork work : {MatrixWork::dealt, MatrixWork::everyone})
      run_ranks(3, [&](Communicator& direct) {
        int exchanges = 0;
        WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& each) {
          exchanges += each.kind == CollectiveKind::all_to_all ? 1 : 0;
        });
        const Context context = testing::context(1);
        MatrixNet net, planned;
        ShardedOptions options = stage(number);
        options.sharding.matrices = work;
        Sharded engine(net, context, comm, muon(), options);
        const auto plan_by = [&](MatrixWork other) {
          ShardedOptions changed = options;
          changed.sharding.matrices = other;
          return plan_rank(lay_out(planned, 3), *muon(), changed, 3, direct.rank());
        };
        std::int64_t before = 0;
        for (int step = 0; step < 2; ++step) {
          exchanges = 0;
          before = engine.data_traffic().sent();
          context.allocator().reset_peaks();
          muon_step(engine, net, {}, step);
          EXPECT_TRUE(engine.step(1e-2).get().taken);
          for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
        }
        const RankPlan plan = plan_by(work), dealt = plan_by(MatrixWork::dealt), all = plan_by(MatrixWork::everyone);
        EXPECT_EQ(engine.data_traffic().sent() - before, plan.traffic.sent()) << name_of(work) << ", stage " << number;
        EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak), plan.memory.buckets)
            << name_of(work) << ", stage " << number;
        EXPECT_EQ(exchanges, number == 0 ? 0 : work == MatrixWork::dealt ? 2 : 1);
        EXPECT_GE(all.matrix_operations, dealt.matrix_operations);
        if (number == 0) { EXPECT_EQ(all.traffic.matrices, 0); }
      });
}

TEST(Muon, GivesTheSameBitsInEveryStageWhereRanksHaveRowsOfTheirOwn) {
  for (const int ranks : {2, 3, 4})
    for (const auto& [dtype, each] : {std::pair{DType::bf16, false}, {DType::bf16, true}, {DType::f16, false}}) {
      std::vector<MuonEnd> ends;
      for (const int number : {0, 1, 2, 3})
        ends.push_back(train_muon({.ranks = ranks,
                                   .stage = number,
                                   .micro_batches = 2,
                                   .everybody_has_rows = true,
                                   .dtype = dtype,
                                   .set = [each = each](ShardedOptions& options) {
                                     options.clip = 0.05;
                                     if (each) options.sharding.accumulation = Accumulation::each_backward;
                                   }}));
      for (const int number : {1, 2, 3})
        EXPECT_EQ(ends[static_cast<std::size_t>(number)].numbers, ends[0].numbers) << ranks << ' ' << number << each;
    }
}

TEST(Muon, GroupsOfRanksGiveTheBitsOfTheirStages) {
  const auto grouped = [](ShardedOptions& options) { options.sharding.group = 2; };
  const MuonEnd first = train_muon({.ranks = 4, .stage = 1, .everybody_has_rows = true, .set = grouped});
  for (const int number : {2, 3})
    EXPECT_EQ(train_muon({.ranks = 4, .stage = number, .everybody_has_rows = true, .set = grouped}).numbers,
              first.numbers)
        << number;
}

TEST(Muon, OneMicroBatchAndFourGiveTheSameWeights) {
  const MuonSettings settings{.products = MuonProducts::fp32};
  for (const int number : {0, 3}) {
    const MuonRun one{.ranks = 2, .stage = number, .everybody_has_rows = true, .settings = settings};
    MuonRun four = one;
    four.micro_batches = 4;
    const MuonEnd whole = train_muon(one), parts = train_muon(four);
    for (const TensorPart& part : whole.weights)
      EXPECT_LT(relative_error(parts.numbers.at(part.name), whole.numbers.at(part.name)), 1e-6) << part.name;
  }
}

TEST(Muon, GoesOnFromItsStateToTheSameBitsByAnotherNumberOfRanks) {
  const MuonEnd through = train_muon({.last = 4});
  for (const auto& [before, after] : {std::pair{1, 3}, {3, 2}, {4, 1}}) {
    const MuonEnd half = train_muon({.ranks = before, .stage = 2, .last = 2});
    EXPECT_EQ(train_muon({.ranks = after, .stage = 3, .first = 2, .last = 4}, &half).numbers, through.numbers)
        << before << " to " << after;
  }
}

TEST(Muon, MastersOfBf16FollowTheirOwnUpdatesAndWeightsAreTheirRounding) {
  const MuonEnd end = train_muon({.ranks = 2, .stage = 1, .dtype = DType::bf16});
  bool differs = false;
  for (const TensorPart& part : end.weights) {
    EXPECT_EQ(part.values.dtype(), DType::f32) << part.name;
    const Tensor narrow = kernels::cast(part.values, DType::bf16);
    differs = differs || doubles(narrow) != doubles(part.values);
  }
  EXPECT_TRUE(differs);
}

TEST(Muon, ASkippedStepChangesNothing) {
  for (const int number : {0, 2})
    run_ranks(2, [&](Communicator& comm) {
      const Context context = testing::context(1);
      MatrixNet net;
      Sharded engine(net, context, comm, muon(), stage(number));
      muon_step(engine, net, {}, 0);
      EXPECT_TRUE(engine.step(1e-2).get().taken);
      const std::vector<double> weights = numbers_of(engine.weights()), state = numbers_of(engine.optimizer_state());
      const Tensor ids = from_values(engine.context(), std::vector<std::int64_t>{1, 2}, {2});
      engine.backward(scale(mean(net(ids)), INFINITY));
      EXPECT_FALSE(engine.step(1).get().taken);
      EXPECT_EQ(numbers_of(engine.weights()), weights);
      EXPECT_EQ(numbers_of(engine.optimizer_state()), state);
    });
}

// A variant of their own: what is hidden by AdamW, and the rest by Muon.
TEST(Muon, GroupsChooseOtherMatrices) {
  const auto optimizer = make_elementwise("Muon", {.settings = MuonSettings{},
                                                   .variants = {MuonSettings{.matrices = MuonMatrices::all},
                                                                MuonSettings{.matrices = MuonMatrices::none}}});
  const Dims shape = {12, 5};
  const ParameterGroup hidden{.matrices = {8, 4}}, other{};
  const auto with = [](ParameterGroup group, std::size_t variant) {
    group.variant = variant;
    return group;
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(optimizer->matrices(shape, hidden), (Rows{8, 4}));
  EXPECT_EQ(optimizer->matrices(shape, other), Rows{});
  EXPECT_EQ(optimizer->matrices(shape, with(hidden, 1)), (Rows{8, 4}));
  EXPECT_EQ(optimizer->matrices(shape, with(other, 1)), Rows{12});
  EXPECT_EQ(optimizer->matrices({12}, with(other, 1)), Rows{});
  EXPECT_EQ(optimizer->matrices(shape, with(hidden, 2)), Rows{});
}

}  // namespace
}  // namespace keel
