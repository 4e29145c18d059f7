// Weights, gradients and states in files: the bytes of the plan, the budget of an update, and what is refused.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/files_support.h"
#include "tests/dist/parallel/planned_counts.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

// Trains two steps, and compares what the engine counts in the second one with the plan.
template <class Net>
void expect_as_planned(const std::string& what, int ranks, const ShardedOptions& options,
                       const UpdateSettings& settings = kFiledAdamW) {
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Net net, planned;
    const auto optimizer = [&] { return make_elementwise("test", {.settings = settings}); };
    const RankPlan plan = plan_rank(lay_out(planned, shard_ranks(options, ranks), optimizer()->requirements().block),
                                    *optimizer(), options, ranks, comm.rank());
    Sharded engine(net, context, comm, optimizer(), options);
    PlannedCounts counts(plan, engine);
    const auto step = [&] {
      for (int micro = 0; micro < options.micro_batches; ++micro) {
        const Tensor x = uniform_tensor(context, {3, kWidth}, 5, options.policy.parameter);
        engine.backward(mean(net(x)), {.last = micro + 1 == options.micro_batches});
      }
      engine.step(1e-3);
      for (const auto& unit : engine.units())
        if (!unit->split().pages_values) unit->parameters().wait_gathered();
    };
    counts.expect_of(step, mutex, what);
    EXPECT_EQ(counts.current(Purpose::bucket), 0) << "what lies in files has left the memory";
  });
}

class FilesPlanOf : public ByStageAndRanks {};
INSTANTIATE_TEST_SUITE_P(Each, FilesPlanOf,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values(1, 2, 3)),
                         FilesPlanOf::case_name);

TEST_P(FilesPlanOf, ReadWriteAndHoldWhatThePlanSays) {
  const int number = this->number(), ranks = this->ranks();
  const std::pair<std::string, void (*)(ShardedOptions&)> kVariants[] = {
      {"", [](ShardedOptions&) {}},
      {"each backward, ", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
      {"without overlap, ", [](ShardedOptions& o) { o.sharding.overlap = false; }},
      {"prefetch 0, ", [](ShardedOptions& o) { o.sharding.prefetch = 0; }},
      {"a few units at a time, ", [](ShardedOptions& o) { o.sharding.offload_budget = 160000; }},
      {"all units at a time, ", [](ShardedOptions& o) { o.sharding.offload_budget = kMuch; }}};
  for (const auto& [name, set] : kVariants)
    for (const FileCase& each : kFileCases)
      for (const int micro_batches : {1, 2}) {
        ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
        set(options);
        each.set(options.sharding);
        if (!name.empty() && each.name != "all") continue;
        if (name == "each backward, " && number == 0 && micro_batches > 1) continue;  // refused with gradients
        if (name.empty()) expect_as_planned<UnitNet>(name + each.name + ", a chain", ranks, options);
        expect_as_planned<MixedNet>(name + each.name + ", a root around units", ranks, options);
      }
}

// LAMB and Adafactor measure whole units; of Adafactor factors stay in memory, and of states in 8 bits their scales.
TEST_P(FilesPlanOf, ReadWriteAndHoldWhatThePlanSaysForOptimizersThatTakeParametersOneByOne) {
  const int number = this->number(), ranks = this->ranks();
  const std::pair<std::string, UpdateSettings> kOptimizers[] = {
      {"LAMB", LambSettings{}},
      {"Adafactor", AdafactorSettings{}},
      {"Adafactor with means", AdafactorSettings{.beta1 = 0.9}},
      {"AdamW in 8 bits", AdamSettings{.decoupled = true, .min_8bit_size = 4096}}};
  for (const auto& [name, settings] : kOptimizers)
    for (const std::int64_t budget : {160000, 1 << 30}) {
      ShardedOptions options = in_dtype(number, DType::bf16, 2);
      options.sharding.offload_budget = budget;
      kFileCases[3].set(options.sharding);
      expect_as_planned<MixedNet>(name, ranks, options, settings);
    }
}

TEST_P(FilesPlanOf, ReadWriteAndHoldWhatThePlanSaysForMatrices) {
  const int number = this->number(), ranks = this->ranks();
  for (const MatrixWork work : {MatrixWork::dealt, MatrixWork::everyone})
    for (const FileCase& each : kFileCases)
      for (const std::int64_t budget : {kLittleOfMatrices, kMuch})
        for (const int micro_batches : {1, 2}) {
          if (work == MatrixWork::everyone && each.name != "all") continue;
          ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
          options.sharding.offload_budget = budget;
          options.sharding.matrices = work;
          each.set(options.sharding);
          const std::string what = concat("Muon, ", each.name, ", ", name_of(work), ", budget ", budget);
          expect_as_planned<HiddenNet>(what + ", a root around units", ranks, options, MuonSettings{});
          if (budget == kMuch) continue;
          expect_as_planned<UnitNet>(what + ", a chain", ranks, options, MuonSettings{});
          if (micro_batches > 1) continue;
          expect_as_planned<LongHiddenNet>(what + ", in batches", ranks, options, MuonSettings{});
        }
}

// The 14 bytes of a number in bf16 with AdamW that are not its weight lie in the file, and go there and back once a
// step.
TEST(FilesPlan, PlanTheBytesOfTheStatesOnce) {
  LargeNet model;
  ShardedOptions options = in_dtype(1, DType::bf16, 1);
  options.sharding.offload_optimizer = Residence::file;
  const RankPlan plan = plan_rank(lay_out(model, 4), *make_adamw(), options, 4, 0);
  EXPECT_EQ(plan.memory.file, 12 * 1'052'672) << "pages begin at whole sectors";
  EXPECT_EQ(plan.traffic.file_read, 12 * 1'049'600);
  EXPECT_EQ(plan.traffic.file_written, 12 * 1'049'600);
  EXPECT_EQ(plan.memory.optimizer, 0);
}

// Of a hidden matrix 8 bytes of a number lie in the file, its master and its momentum: the first walk reads the latter,
// and the second the former.
TEST(FilesPlan, PlanTheMomentumOfMatricesAndNoMeansOfTheirs) {
  LargeNet model;
  ShardedOptions options = in_dtype(1, DType::bf16, 1);
  options.sharding.offload_optimizer = Residence::file;
  options.sharding.offload_budget = kMuch;
  const auto muon = make_elementwise("Muon", {.settings = MuonSettings{}});
  const auto plan = [&](int rank) { return plan_rank(lay_out(model, 4), *muon, options, 4, rank); };
  constexpr std::int64_t kUnits = 4, kShard = 262'400, kBiases = 1024;
  EXPECT_EQ(plan(0).traffic.file_read, 8 * kUnits * kShard);
  EXPECT_EQ(plan(0).traffic.file_written, 8 * kUnits * kShard);
  EXPECT_EQ(plan(3).traffic.file_read, 8 * kUnits * (kShard + kBiases)) << "the last shard has AdamW's two means";
  EXPECT_EQ(plan(0).memory.optimizer, 0);
  EXPECT_EQ(plan(3).memory.optimizer, 0);
}

// What an update has in memory does not grow with the largest unit.
TEST(FilesPlan, AreWalkedInPiecesWithinTheBudgetWhateverTheLargestUnitIs) {
  ShardedOptions options = in_dtype(0, DType::bf16, 1);
  kFileCases[3].set(options.sharding);
  constexpr std::int64_t kOfNumber = 16;  // bytes: weight, gradient, master and two states
  options.sharding.offload_budget = 4 * 2048 * kOfNumber;
  for (const std::int64_t width : {64, 128, 256}) {
    UnitNet net(width, 2);
    const Context context = testing::context(1);
    Sharded engine(net, context, make_adamw(), options);
    engine.backward(mean(net(uniform_tensor(context, {3, width}, 1, DType::bf16))));
    context.allocator().reset_peaks();
    engine.step(1e-3).get();
    const auto peak = static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak);
    EXPECT_LE(peak, options.sharding.offload_budget) << width;
    EXPECT_GT(peak, options.sharding.offload_budget / 2) << width;
  }
}

// Nor do the matrices that are prepared and not yet updated grow with the number of units.
TEST(FilesPlan, HaveNoMoreMatricesInMemoryThanTheBudgetHasRoomForWhateverTheNumberOfUnitsIs) {
  ShardedOptions options = in_dtype(0, DType::bf16, 1);
  kFileCases[3].set(options.sharding);
  for (const int units : {2, 8, 24}) {
    UnitNet net(kWidth, units);
    const Context context = testing::context(1);
    Sharded engine(net, context, make_elementwise("Muon", {.settings = MuonSettings{}}), options);
    engine.backward(mean(net(uniform_tensor(context, {3, kWidth}, 1, DType::bf16))));
    context.allocator().reset_peaks();
    engine.step(1e-3).get();
    const auto peak = static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak);
    EXPECT_LE(peak, 2 * options.sharding.offload_budget) << units;
    EXPECT_GT(peak, options.sharding.offload_budget) << units;
  }
}

TEST(FilesPlan, OfUnitsThatTheBudgetHasNoRoomForAreRefusedByName) {
  UnitNet net;
  ShardedOptions options = in_dtype(0, DType::bf16, 1);
  const auto refusal = [&] { return error_of([&] { Sharded(net, testing::context(1), make_adamw(), options); }); };
  options.sharding.offload_optimizer = Residence::file;
  options.sharding.offload_budget = 12 * 2048 - 1;
  EXPECT_EQ(refusal(),
            "sharding.offload_budget is 24.0 KiB, and an update has 24.0 KiB of layers.0 in memory at a time of "
            "what lies in files");
  options.sharding.offload_budget = 12 * 2048;
  EXPECT_EQ(refusal(), "");
}

// The states of AdamW in 8 bits are codes of blocks; Muon's walks take any piece.
TEST(FilesPlan, OfAnOptimizerThatUpdatesBlocksOfParametersComeWhole) {
  ShardedOptions options = in_dtype(0, DType::bf16, 1);
  options.sharding.offload_parameters = Residence::file;
  options.sharding.offload_budget = 2 * 2048;
  const auto refusal = [&](const UpdateSettings& settings) {
    return error_of([&] {
      UnitNet net;
      Sharded(net, testing::context(1), make_elementwise("test", {.settings = settings}), options);
    });
  };
  EXPECT_EQ(refusal(AdamSettings{.decoupled = true}), "");
  EXPECT_EQ(refusal(MuonSettings{}), "");
  EXPECT_NE(refusal(AdamSettings{.decoupled = true, .min_8bit_size = 4096}).find("of layers.0 in memory"),
            std::string::npos);
}

TEST(FilesPlan, AreRefusedWithWhatNeedsAllAtOnce) {
  const auto refusal = [](const ShardedOptions& options, std::unique_ptr<Optimizer> optimizer) {
    return error_of([&] {
      UnitNet net;
      Sharded(net, testing::context(1), std::move(optimizer), options);
    });
  };
  ShardedOptions options = in_dtype(3, DType::f32, 2);
  options.clip = 0;
  for (const FileCase& each : kFileCases) {
    ShardedOptions files = options;
    each.set(files.sharding);
    EXPECT_NE(refusal(files, make_lbfgs()).find("is not offered with LBFGS"), std::string::npos) << each.name;
  }
  options = in_dtype(3, DType::bf16, 2);
  options.sharding.offload_gradients = Residence::file;
  options.clip_by = ClipBy::value;
  EXPECT_EQ(refusal(options, make_adamw()),
            "sharding.offload_gradients is not offered with clip_by: value: all gradients would be read once more");
  options.clip_by = ClipBy::norm;
  options.scratch_file = {};
  EXPECT_EQ(refusal(options, make_adamw()),
            "what lies in files needs sharding.offload_folder, the folder of the files");
}

}  // namespace
}  // namespace keel
