// Weights, gradients and states in files: the same bits as in memory.

#include <gtest/gtest.h>

#include <mutex>

#include "tests/dist/parallel/files_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Numbers of rank 0, of weights and state, and what the steps told.
std::vector<double> trained(int ranks, const ShardedOptions& options, const UpdateSettings& optimizer, int steps = 3) {
  std::vector<double> outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    MixedNet net;
    Sharded engine(net, context, comm, make_elementwise("test", {.settings = optimizer, .weight_decay = 0.01}),
                   options);
    std::vector<double> mine;
    for (int step = 0; step < steps; ++step) {
      for (int micro = 0; micro < options.micro_batches; ++micro) {
        const Tensor x =
            rows(context, step, comm, micro, static_cast<int>(options.micro_batches), 7, options.policy.parameter);
        engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro + 1 == options.micro_batches});
      }
      const StepResult result = engine.step(1e-2).get();
      mine.push_back(result.grad_norm);
      mine.push_back(result.taken ? 1 : 0);
    }
    for (const double each : whole_values(engine)) mine.push_back(each);
    for (const double each : numbers_of(engine.weights())) mine.push_back(each);
    for (const double each : numbers_of(engine.optimizer_state())) mine.push_back(each);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = mine;
  });
  return outcome;
}

TEST(Files, GiveTheBitsOfMemoryInEveryStageAndNumberOfRanks) {
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 2}) {
        const ShardedOptions options = in_dtype(number, DType::bf16, micro_batches);
        const std::vector<double> expected = trained(ranks, options, kFiledAdamW);
        for (const FileCase& each : kFileCases) {
          if (ranks != 3 && each.name != "all") continue;
          ShardedOptions files = options;
          each.set(files.sharding);
          EXPECT_TRUE(trained(ranks, files, kFiledAdamW) == expected)
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
          const std::vector<double> expected = trained(ranks, options, optimizer);
          ShardedOptions files = options;
          kFileCases[3].set(files.sharding);
          if (dtype == DType::f64) files.sharding.offload_budget = kLittleOfF64;
          EXPECT_TRUE(trained(ranks, files, optimizer) == expected) << "stage " << number << ", " << ranks << " ranks";
        }
}

// Those that measure whole parameters first do so a unit at a time.
TEST(Files, GiveTheBitsOfMemoryForOptimizersThatMeasureParameters) {
  for (const UpdateSettings& optimizer :
       {UpdateSettings(LambSettings{}), UpdateSettings(LarsSettings{}), UpdateSettings(AdafactorSettings{})})
    for (const int number : {0, 1, 3})
      for (const int ranks : {1, 2, 3}) {
        ShardedOptions options = in_dtype(number, DType::bf16, 2);
        options.sharding.offload_budget = kMuch;
        const std::vector<double> expected = trained(ranks, options, optimizer);
        kFileCases[3].set(options.sharding);
        if (std::holds_alternative<AdafactorSettings>(optimizer))
          options.sharding.offload_optimizer = Residence::device;
        EXPECT_TRUE(trained(ranks, options, optimizer) == expected)
            << optimizer.index() << ", stage " << number << ", " << ranks << " ranks";
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
      {"compressed", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::int8}; }},
      {"top k", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::top_k, .fraction = 0.1}; }}};
  for (const auto& [name, set] : kVariants)
    for (const int number : {1, 2, 3}) {
      ShardedOptions options = in_dtype(number, DType::bf16, 2);
      set(options);
      const std::vector<double> expected = trained(2, options, kFiledAdamW);
      kFileCases[3].set(options.sharding);
      EXPECT_TRUE(trained(2, options, kFiledAdamW) == expected) << name << ", stage " << number;
    }
}

}  // namespace
}  // namespace keel
