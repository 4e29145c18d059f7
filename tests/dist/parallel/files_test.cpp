// Weights, gradients and states in files: the same bits as in memory.

#include <gtest/gtest.h>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/files_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class FilesOf : public ByStageAndRanks {};
INSTANTIATE_TEST_SUITE_P(Each, FilesOf,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values(1, 2, 3, 4)),
                         FilesOf::case_name);

TEST_P(FilesOf, GiveTheBitsOfMemory) {
  const int number = this->number(), ranks = this->ranks();
  for (const int micro_batches : {1, 2}) {
    const ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
    const std::vector<double> expected = trained<MixedNet>(ranks, options, kFiledAdamW);
    for (const FileCase& each : kFileCases) {
      if (ranks != 3 && each.name != "all") continue;
      ShardedOptions files = options;
      each.set(files.sharding);
      EXPECT_TRUE(trained<MixedNet>(ranks, files, kFiledAdamW) == expected)
          << each.name << ", stage " << number << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
    }
  }
}

TEST(Files, GiveTheBitsOfMemoryInEveryPrecisionAndForOtherOptimizers) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64})
    for (const UpdateSettings& optimizer :
         {kFiledAdamW, UpdateSettings(NAdamSettings{}), UpdateSettings(ScheduleFreeSettings{}),
          UpdateSettings(AdagradSettings{.initial_accumulator = 0.1})})
      for (const int number : {0, 3})
        for (const int ranks : {1, 2}) {
          const ShardedOptions options = in_dtype(number, dtype, 2);
          const std::vector<double> expected = trained<MixedNet>(ranks, options, optimizer);
          ShardedOptions files = options;
          kFileCases[3].set(files.sharding);
          if (dtype == DType::f64) files.sharding.offload_budget = kLittleOfF64;
          EXPECT_TRUE(trained<MixedNet>(ranks, files, optimizer) == expected)
              << "stage " << number << ", " << ranks << " ranks";
        }
}

void expect_the_bits_of_memory(const UpdateSettings& optimizer, int number, int ranks) {
  ShardedOptions options = in_dtype(number, DType::bf16, 2);
  options.sharding.offload_budget = kMuch;
  const std::vector<double> expected = trained<MixedNet>(ranks, options, optimizer);
  kFileCases[3].set(options.sharding);
  EXPECT_TRUE(trained<MixedNet>(ranks, options, optimizer) == expected)
      << optimizer.index() << ", stage " << number << ", " << ranks << " ranks";
}

// Those that measure whole parameters first do so a unit at a time.
TEST(Files, GiveTheBitsOfMemoryForOptimizersThatMeasureParameters) {
  for (const UpdateSettings& optimizer :
       {UpdateSettings(LambSettings{}), UpdateSettings(LarsSettings{}), UpdateSettings(AdafactorSettings{}),
        UpdateSettings(AdafactorSettings{.beta1 = 0.9})})
    for (const int number : {0, 1, 3})
      for (const int ranks : {1, 2, 3}) expect_the_bits_of_memory(optimizer, number, ranks);
}

// Codes of large parameters and their scales, and fp32 of the others.
TEST(Files, GiveTheBitsOfMemoryForStatesInEightBits) {
  const UpdateSettings optimizer = AdamSettings{.decoupled = true, .min_8bit_size = 4096};
  for (const int number : {0, 1, 3})
    for (const int ranks : {1, 2, 3}) expect_the_bits_of_memory(optimizer, number, ranks);
}

// Muon on matrices, and AdamW on the rest, one walk after the other.
TEST_P(FilesOf, GiveTheBitsOfMemoryForMatrices) {
  const int number = this->number(), ranks = this->ranks();
  const auto run = [](int ranks, const ShardedOptions& options, std::uint64_t seed) {
    return trained<HiddenNet>(ranks, options, MuonSettings{}, 3, seed);
  };
  for (const std::uint64_t seed : {7, 8})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int micro_batches : {1, 4}) {
        ShardedOptions options = in_dtype(number, dtype, micro_batches);
        options.clip = 1e-3;
        const std::vector<double> expected = run(ranks, options, seed);
        EXPECT_GT(expected[0], options.clip) << "gradients are clipped";
        for (const FileCase& each : kFileCases)
          for (const MatrixWork work : {MatrixWork::dealt, MatrixWork::everyone}) {
            if (each.name != "all" && (ranks != 3 || seed != 7)) continue;
            if (work == MatrixWork::everyone && seed == 7) continue;
            ShardedOptions files = options;
            files.sharding.matrices = work;
            files.sharding.offload_budget = kLittleOfMatrices;
            each.set(files.sharding);
            EXPECT_TRUE(run(ranks, files, seed) == expected)
                << each.name << ", " << name_of(work) << ", " << name_of(dtype) << ", stage " << number << ", " << ranks
                << " ranks, " << micro_batches << " micro-batches, seed " << seed;
          }
      }
}

// Whether a step is taken stands behind its norm.
TEST_P(FilesOf, GiveTheBitsOfMemoryForMatricesWhereStepsAreSkipped) {
  const int number = this->number(), ranks = this->ranks();
  constexpr int kSteps = 6;
  for (const int micro_batches : {1, 4}) {
    ShardedOptions options = in_dtype(number, DType::f16, micro_batches);
    options.sharding.offload_budget = kLittleOfMatrices;
    options.loss_scale = 65536 * 4;
    const std::vector<double> expected = trained<HiddenNet>(ranks, options, MuonSettings{}, kSteps);
    EXPECT_EQ(expected[1], 0) << "the first step is skipped";
    EXPECT_EQ(expected[2 * kSteps - 1], 1) << "and the last one is not";
    kFileCases[3].set(options.sharding);
    EXPECT_TRUE(trained<HiddenNet>(ranks, options, MuonSettings{}, kSteps) == expected)
        << "stage " << number << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
  }
}

// Some units are updated before matrices of the next ones are prepared.
TEST_P(FilesOf, GiveTheBitsOfMemoryForMatricesInBatches) {
  const int number = this->number(), ranks = this->ranks();
  LongHiddenNet net;
  const auto muon = make_elementwise("Muon", {.settings = MuonSettings{}});
  for (const MatrixWork work : {MatrixWork::dealt, MatrixWork::everyone}) {
    const ShardedOptions options = in_dtype(number, DType::bf16, 2);
    ShardedOptions files = options;
    kFileCases[3].set(files.sharding);
    files.sharding.matrices = work;
    files.sharding.offload_budget = kLittleOfMatrices;
    const std::vector<MatrixDeal> batches = plan_matrices(lay_out(net, shard_ranks(files, ranks)), *muon, files, ranks);
    if (ranks < 4) { EXPECT_GT(batches.size(), 1U); }
    EXPECT_TRUE(trained<LongHiddenNet>(ranks, files, MuonSettings{}) ==
                trained<LongHiddenNet>(ranks, options, MuonSettings{}))
        << name_of(work) << ", stage " << number << ", " << ranks << " ranks";
  }
}

// A layer that the loss does not depend on, whose gradient is zero: of a unit of its own, and among others of the root.
struct IdleNet : MixedNet {
  Linear idle{kWidth, kWidth};
  UnitLayer idle_unit;
  void visit(Visitor& v) override {
    MixedNet::visit(v);
    v("idle", idle);
    v("idle_unit", idle_unit);
  }
};

TEST(Files, GiveTheBitsOfMemoryWhereWeightsAreNotUsed) {
  for (const int number : {0, 2})
    for (const int ranks : {1, 2})
      for (const int micro_batches : {1, 2}) {
        ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
        options.sharding.offload_budget = kLittleOfF64;
        const std::vector<double> expected = trained<IdleNet>(ranks, options, kFiledAdamW);
        kFileCases[2].set(options.sharding);
        EXPECT_TRUE(trained<IdleNet>(ranks, options, kFiledAdamW) == expected)
            << "stage " << number << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
      }
}

// A random number follows from the place of an element among all.
TEST(Files, GiveTheBitsOfMemoryForWeightsThatAreRoundedAtRandom) {
  for (const UpdateSettings& settings : {kFiledAdamW, UpdateSettings(MuonSettings{})})
    for (const int number : {0, 3}) {
      const ElementwiseOptions optimizer{
          .settings = settings, .weight_decay = 0.01, .stochastic_rounding = true, .seed = 5};
      ShardedOptions options = in_dtype(number, DType::bf16, 2);
      options.sharding.offload_budget = kLittleOfMatrices;
      const std::vector<double> expected = trained<HiddenNet>(2, options, optimizer);
      kFileCases[3].set(options.sharding);
      EXPECT_TRUE(trained<HiddenNet>(2, options, optimizer) == expected) << settings.index() << ", stage " << number;
    }
}

TEST(Files, GiveTheBitsOfMemoryForMatricesWhoeverTheyBelongTo) {
  for (const UpdateSettings& optimizer :
       {UpdateSettings(MuonSettings{.products = MuonProducts::fp32, .matrices = MuonMatrices::all}),
        UpdateSettings(MuonSettings{.matrices = MuonMatrices::none})})
    for (const DType dtype : {DType::bf16, DType::f64})
      for (const int number : {0, 3})
        for (const std::int64_t budget : {kLittleOfF64, kMuch}) {
          ShardedOptions options = in_dtype(number, dtype, 2);
          options.sharding.offload_budget = budget;
          const std::vector<double> expected = trained<HiddenNet>(2, options, optimizer);
          kFileCases[3].set(options.sharding);
          EXPECT_TRUE(trained<HiddenNet>(2, options, optimizer) == expected)
              << name_of(dtype) << ", stage " << number << ", budget " << budget;
        }
}

TEST(Files, GiveTheBitsOfMemoryHoweverGradientsAreSummed) {
  const std::pair<std::string, void (*)(ShardedOptions&)> kVariants[] = {
      {"each backward", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
      {"without overlap", [](ShardedOptions& o) { o.sharding.overlap = false; }},
      {"small buckets", [](ShardedOptions& o) { o.sharding.bucket = o.sharding.first_bucket = 1; }},
      {"groups of one", [](ShardedOptions& o) { o.sharding.group = 1; }},
      {"prefetch 0", [](ShardedOptions& o) { o.sharding.prefetch = 0; }},
      {"prefetch 3", [](ShardedOptions& o) { o.sharding.prefetch = 3; }},
      {"not resharded", [](ShardedOptions& o) { o.sharding.reshard_after_forward = false; }},
      {"persistent", [](ShardedOptions& o) { o.sharding.persistence_threshold = 4200; }},
      {"virtual ranks", [](ShardedOptions& o) { o.sharding.virtual_ranks = 2; }},
      {"compressed", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::int8}; }},
      {"top k", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::top_k, .fraction = 0.1}; }}};
  for (const auto& [name, set] : kVariants)
    for (const int number : {1, 2, 3}) {
      ShardedOptions options = in_dtype(number, DType::bf16, 2);
      set(options);
      ShardedOptions files = options;
      kFileCases[3].set(files.sharding);
      if (files.sharding.virtual_ranks > 0) files.sharding.offload_gradients = Residence::device;
      EXPECT_TRUE(trained<MixedNet>(2, files, kFiledAdamW) == trained<MixedNet>(2, options, kFiledAdamW))
          << name << ", stage " << number;
      files.sharding.offload_budget = kLittleOfMatrices;
      EXPECT_TRUE(trained<HiddenNet>(2, files, MuonSettings{}) == trained<HiddenNet>(2, options, MuonSettings{}))
          << "Muon, " << name << ", stage " << number;
    }
}

TEST(Files, TakeWhatSomebodyMakesOfAGradientBeforeTheStep) {
  for (const auto& [ranks, number] : {std::pair(1, 0), {2, 0}, {2, 1}})
    run_ranks(ranks, [number = number](Communicator& comm) {
      const Context context = testing::context(1);
      const auto trained = [&](Residence residence) {
        UnitNet net;
        ShardedOptions options = in_dtype(number, DType::f32, 1);
        options.sharding.offload_gradients = residence;
        Sharded engine(net, context, comm, make_sgd(), options);
        engine.backward(mean(square(net(uniform_tensor(context, {3, kWidth}, 1)))));
        for_each_parameter(net, [](const std::string&, Parameter& each) { kernels::scale(each.grad(), 8); });
        std::vector<double> all = {engine.step(1).get().grad_norm};
        for (const double each : whole_values(engine)) all.push_back(each);
        return all;
      };
      const std::vector<double> expected = trained(Residence::device);
      EXPECT_EQ(trained(Residence::file), expected);
      EXPECT_EQ(trained(Residence::host), expected);
    });
}

TEST(Files, ThatAreReadThroughTheSystemsCacheAreNamedInTheLog) {
  const auto logged = [](std::size_t alignment) {
    std::vector<std::string> all;
    ContextOptions made;
    made.threads = 1;
    made.log = [&](LogLevel level, std::string_view message) {
      EXPECT_EQ(level, LogLevel::info);
      all.emplace_back(message);
    };
    ShardedOptions options = in_dtype(3, DType::bf16, 1);
    options.sharding.offload_optimizer = Residence::file;
    options.scratch_file = [=](const std::string&) { return std::make_unique<FaultyFile>(nullptr, alignment); };
    UnitNet net;
    Sharded(net, Context::create(made), make_adamw(), options);
    return all;
  };
  EXPECT_EQ(logged(1), (std::vector<std::string>{"files in memory are read and written through the system's cache"}));
  EXPECT_EQ(logged(512), std::vector<std::string>{});
}

}  // namespace
}  // namespace keel
