// Runs whose numbers lie in files: every strategy's name trains, and a run goes on wherever they lie.

#include <gtest/gtest.h>

#include <map>

#include "keel/trainer/strategy.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::string trained_by(int n, const TemporaryFolder& place, const std::string& run,
                       const std::vector<std::string>& settings, std::int64_t stop_after = INT64_MAX) {
  const Config config = small_run(place, run, settings);
  train_by(n, config, stop_after);
  return stop_after == INT64_MAX ? weights_of(config) : "";
}

TEST(OffloadedRun, HasTheWeightsOfMemoryByTheNamesOfStrategies) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    const std::string expected = trained_by(1, place, "memory", {"strategy=" + precision, "eval.every=0"});
    for (const auto& [name, ranks] : {std::pair("zero3-PREC-cpu-nvme", 1),
                                      {"deepspeed-3-PREC-nvme-nvme", 1},
                                      {"ddp-PREC-nvme-cpu", 1},
                                      {"fsdp-PREC-cpu", 1}}) {
      std::string strategy = name;
      strategy.replace(strategy.find("PREC"), 4, precision);
      EXPECT_TRUE(trained_by(ranks, place, strategy, {"strategy=" + strategy, "eval.every=0"}) == expected) << strategy;
    }
    const std::string of_two = trained_by(2, place, "two", {"strategy=zero3-" + precision, "eval.every=0"});
    for (const char* name : {"deepspeed-2-PREC-none-nvme", "deepspeed-3-PREC-nvme-nvme"}) {
      std::string strategy = name;
      strategy.replace(strategy.find("PREC"), 4, precision);
      EXPECT_TRUE(trained_by(2, place, "two-" + strategy,
                             {"strategy=" + strategy, "sharding.offload_gradients=file", "eval.every=0"}) == of_two)
          << strategy;
    }
  }
}

// Every name that puts something into files, with Muon for the matrices.
TEST(OffloadedRun, HasTheWeightsOfMemoryByTheNamesOfStrategiesWithMuon) {
  std::vector<std::string> names = {"ddp-bf16-nvme-nvme", "zero1-bf16-none-nvme", "zero1-fp32-nvme"};
  for (const std::string& name : strategy_names())
    if (name.find("nvme") != std::string::npos && why_not_offered(parse_strategy(name)).empty()) names.push_back(name);
  const TemporaryFolder place;
  std::map<std::string, std::string> expected;  // by the strategy without files
  for (const std::string& name : names) {
    const auto weights = [&](const std::string& run, const std::string& strategy) {
      std::vector<std::string> settings = {"strategy=" + strategy, "optimizer.type=Muon", "eval.every=0", "steps=4"};
      if (strategy.find("fp16") != std::string::npos) settings.emplace_back("loss_scale.initial=4096");
      return trained_by(2, place, run, settings);
    };
    Strategy plain = parse_strategy(name);
    plain.optimizer = plain.parameter = Strategy::Offload::none;
    const std::string memory = to_string(plain);
    if (!expected.contains(memory)) expected[memory] = weights("of-" + memory, memory);
    EXPECT_TRUE(weights(name, name) == expected[memory]) << name;
  }
}

TEST(OffloadedRun, GoesOnWithNumbersInOtherPlacesToTheSameBits) {
  for (const std::string optimizer : {"AdamW", "Muon", "Adafactor"}) {
    std::vector<std::string> memory = {"strategy=zero3-bf16", concat("optimizer.type=", optimizer)},
                             files = {"strategy=zero3-bf16-nvme-nvme", "sharding.offload_gradients=file", memory[1]};
    if (optimizer == "Adafactor")
      for (std::vector<std::string>* each : {&memory, &files}) each->push_back("optimizer.relative_step=false");
    const TemporaryFolder place;
    const std::string expected = trained_by(2, place, "whole", memory);
    for (const auto& [run, first, second] :
         {std::tuple("to-files", memory, files), {"from-files", files, memory}, {"files", files, files}}) {
      trained_by(2, place, run, first, 5);
      std::vector<std::string> on = second;
      on.push_back("resume=auto");
      EXPECT_TRUE(trained_by(2, place, run, on) == expected) << run << ", " << optimizer;
    }
  }
}

TEST(OffloadedRun, KeepsFilesInTheRunsFolderAndLeavesNone) {
  const TemporaryFolder place;
  trained_by(1, place, "run", {"strategy=zero1-fp32-nvme"});
  for (const auto& entry : std::filesystem::directory_iterator(place / "run"))
    EXPECT_EQ(entry.path().filename().string().find("keel-"), std::string::npos) << entry.path();
  const std::string told = error_of([&] {
    trained_by(1, place, "other", {"strategy=zero1-fp32-nvme", "sharding.offload_folder=/proc/no"});
  });
  EXPECT_NE(told.find("/proc/no"), std::string::npos) << told;
}

}  // namespace
}  // namespace keel
