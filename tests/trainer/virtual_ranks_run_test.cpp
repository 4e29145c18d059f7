// Runs of virtual ranks: the same training, lines of the log and all, by any number of ranks, also one that changes.

#include <gtest/gtest.h>

#include <map>

#include "keel/runtime/device_api.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/config_mistakes.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Ten rows of eight virtual ranks: two of them have two micro-batches with rows, the others one.
Config run_of_eight(const TemporaryFolder& place, const std::string& name, std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {"batch.global=10", "batch.micro=1", "clip=0.5", "threads=1",
                                       "sharding.virtual_ranks=8"};
  settings.insert(settings.end(), more.begin(), more.end());
  return small_run(place, name, settings);
}

// All that records say of a training, without times and what a rank has sent.
std::map<std::int64_t, std::map<std::string, double>> told_by(const Config& config) {
  std::map<std::int64_t, std::map<std::string, double>> told;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    for (const auto& [name, value] : record.members())
      for (const char* kept : {"loss", "validation_loss", "grad_norm", "lr", "tokens"})
        if (name == kept) told[record.at("step").integer()][name] = value.number();
  return told;
}

TEST(VirtualRankRuns, HaveTheBitsAndTheRecordsOfOneTrainingByAnyNumberOfRanks) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    const Config eight = run_of_eight(place, "eight", {"steps=5", "strategy=ddp-" + precision});
    const auto told = train_by(8, eight);
    ASSERT_EQ(told[0]->losses.size(), 5u);
    ASSERT_EQ(told_by(eight).size(), 5u);
    for (const auto& [n, stage] : {std::pair(1, "ddp-"), std::pair(2, "zero3-"), std::pair(4, "zero1-")}) {
      const Config config = run_of_eight(place, concat("by", n), {"steps=5", concat("strategy=", stage, precision)});
      EXPECT_EQ(train_by(n, config)[0]->losses, told[0]->losses) << n << precision;
      EXPECT_TRUE(weights_of(config) == weights_of(eight)) << n << precision;
      EXPECT_EQ(told_by(config), told_by(eight)) << n << precision;
    }
  }
}

TEST(VirtualRankRuns, EndInTheSameBitsWhateverRanksTheyWereContinuedBy) {
  const TemporaryFolder place;
  const Config whole = run_of_eight(place, "whole", {"strategy=zero2-bf16"});
  const std::vector<double> losses = train_by(8, whole)[0]->losses;
  std::vector<double> parts;
  const std::tuple<int, std::int64_t, const char*> sessions[] = {
      {8, 2, "zero2-bf16"}, {4, 5, "zero3-bf16"}, {1, 7, "ddp-bf16"}, {8, INT64_MAX, "zero2-bf16"}};
  for (const auto& [n, stop_after, strategy] : sessions) {
    const auto told =
        train_by(n, run_of_eight(place, "parts", {concat("strategy=", strategy), "resume=auto"}), stop_after);
    EXPECT_FALSE(told[0]->losses.empty()) << n;
    parts.insert(parts.end(), told[0]->losses.begin(), told[0]->losses.end());
  }
  EXPECT_EQ(parts, losses);
  const Config rest = run_of_eight(place, "parts");
  EXPECT_TRUE(weights_of(rest) == weights_of(whole));
  EXPECT_EQ(told_by(rest), told_by(whole));
}

TEST(VirtualRankRuns, AnotherNumberOfThemIsToldWhereARunGoesOn) {
  const TemporaryFolder place;
  train_by(2, run_of_eight(place, "run"), 2);
  const auto told = train_by(2, run_of_eight(place, "run", {"sharding.virtual_ranks=2", "resume=auto"}));
  EXPECT_NE(told[0]->messages.find("sharding.virtual_ranks"), std::string::npos) << told[0]->messages;
}

// An optimizer that measures whole parameters has the sums of virtual ranks, one alone on a device, too.
TEST(VirtualRankRuns, OfARankAloneOnADeviceMeasureAsSeveralDo) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const TemporaryFolder place;
  int runs = 0;
  for (const char* optimizer : {"{type: LAMB, lr: 1e-2}", "{type: Adafactor}"}) {
    const auto weights = [&](int n) {
      const Config config =
          small_run(place, concat("run", runs++),
                    {"device=emulated", "steps=2", "scheduler.warmup=1", "eval.every=0", "model.layers=1",
                     "batch.global=4", "batch.micro=1", "sharding.virtual_ranks=2", concat("optimizer=", optimizer)});
      train_by(n, config);
      return weights_of(config);
    };
    EXPECT_TRUE(weights(1) == weights(2)) << optimizer;
  }
}

TEST(VirtualRankRuns, AreRefusedToRanksThatCannotShareThem) {
  const TemporaryFolder place;
  EXPECT_NE(
      error_of([&] { train_by(3, run_of_eight(place, "three")); }).find("8 virtual ranks are shared by 1, 2, 4 ..."),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              train_by(2, run_of_eight(place, "few", {"batch.global=6"}));
            }).find("6 rows is too small for 8 virtual ranks"),
            std::string::npos);
}

TEST(VirtualRankRuns, SayWhatDoesNotGoTogetherWithThemWhereItWasGiven) {
  EXPECT_NE(message_of(with("sharding: {virtual_ranks: 6}")).find("must be a power of two"), std::string::npos);
  const std::string few = "sharding: {virtual_ranks: 4}\n";
  for (const std::string& other :
       {std::string("sharding: {virtual_ranks: 4, group: 2}"), std::string("sharding: {virtual_ranks: 4, wire: bf16}"),
        std::string("sharding: {virtual_ranks: 4, weight_code: int8}"),
        std::string("sharding: {virtual_ranks: 4, accumulation: each_backward}"),
        std::string("sharding: {virtual_ranks: 4, algorithm: ring}"),
        std::string("sharding: {virtual_ranks: 4, order: fast}"), few + "gradient_compression: {type: int8}",
        few + "cuda_graph: true", few + "optimizer: {type: LBFGS}\nclip: 0", few + "outer: {type: local_sgd}"})
    EXPECT_NE(message_of(with(other)).find("does not go together with sharding.virtual_ranks"), std::string::npos)
        << other << '\n'
        << message_of(with(other));
  EXPECT_EQ(message_of(with("sharding: {virtual_ranks: 4, wire: fp32, algorithm: tree}")), "");
}

}  // namespace
}  // namespace keel
