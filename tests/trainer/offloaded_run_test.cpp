// Runs whose numbers lie in files: every strategy's name trains, and a run goes on wherever they lie.

#include <gtest/gtest.h>

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

TEST(OffloadedRun, GoesOnWithNumbersInOtherPlacesToTheSameBits) {
  const std::vector<std::string> memory = {"strategy=zero3-bf16"},
                                 files = {"strategy=zero3-bf16-nvme-nvme", "sharding.offload_gradients=file"};
  const TemporaryFolder place;
  const std::string expected = trained_by(2, place, "whole", memory);
  for (const auto& [run, first, second] :
       {std::tuple("to-files", memory, files), {"from-files", files, memory}, {"files", files, files}}) {
    trained_by(2, place, run, first, 5);
    std::vector<std::string> on = second;
    on.push_back("resume=auto");
    EXPECT_TRUE(trained_by(2, place, run, on) == expected) << run;
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
