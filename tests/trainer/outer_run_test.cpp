// Runs whose groups of ranks take outer steps: resuming inside a window, with other ranks, and what is refused.

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<std::string> outer_settings(const std::string& outer, const std::string& strategy, int group) {
  return {"outer=" + outer, "strategy=" + strategy, concat("sharding.group=", group)};
}

std::vector<std::string> plus(std::vector<std::string> settings, const std::string& more) {
  settings.push_back(more);
  return settings;
}

TEST(OuterRun, GoesOnInsideAWindowToTheSameBits) {
  for (const auto& [outer, strategy, ranks, group] : std::vector<std::tuple<const char*, const char*, int, int>>{
           {"{type: diloco, every: 3}", "ddp-fp32", 2, 1},
           {"{type: local_sgd, every: 4}", "zero3-bf16", 4, 2},
           {"{type: streaming_diloco, every: 4, fragments: 2}", "zero2-bf16", 3, 1},
           {"{type: sparse_loco, every: 3, chunk: 64, keep: 4}", "zero2-fp32", 4, 2},
           {"{type: demo, chunk: 16, keep: 2}", "zero3-fp32", 4, 2}}) {
    const TemporaryFolder place;
    const std::vector<std::string> settings = outer_settings(outer, strategy, group);
    train_by(ranks, small_run(place, "whole", settings));
    train_by(ranks, small_run(place, "parts", settings), 5);
    EXPECT_TRUE(std::filesystem::exists(RunFolder(place / "parts").checkpoint(5) +
                                        concat("/group-", ranks, "-of-", ranks, ".safetensors")));
    train_by(ranks, small_run(place, "parts", plus(settings, "resume=auto")));
    EXPECT_TRUE(weights_of(small_run(place, "parts")) == weights_of(small_run(place, "whole"))) << outer;
  }
}

TEST(OuterRun, GoesOnWithOtherRanksFromTheFirstGroup) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = outer_settings("{type: diloco, every: 3}", "ddp-fp32", 1);
  const Config config = small_run(place, "run", settings);
  train_by(2, config, 5);
  const std::string checkpoint = RunFolder(config.run).checkpoint(5);
  for (const int n : {1, 3}) {
    const std::string run = concat("on-", n);
    const auto told = train_by(n, small_run(place, run, plus(settings, "resume=" + checkpoint)));
    EXPECT_FALSE(weights_of(small_run(place, run)).empty());
    EXPECT_EQ(n > 1, told[0]->messages.find("without what the others have learnt") != std::string::npos)
        << told[0]->messages;
  }
}

// Another program's strategy, in what a run has stored.
TEST(OuterRun, OfAStrategyThatTheProgramDoesNotHaveIsTold) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", outer_settings("{type: local_sgd, every: 3}", "ddp-fp32", 1));
  const std::string yaml = to_yaml(config);
  check_is_known(*config.keys, yaml, "run");
  const std::string others =
      yaml.substr(0, yaml.find("local_sgd")) + "elastic" + yaml.substr(yaml.find("local_sgd") + 9);
  const std::string told = error_of([&] { check_is_known(*config.keys, others, "run"); });
  EXPECT_NE(told.find("'run' is of the strategy of communication 'elastic', which this program does not have"),
            std::string::npos)
      << told;
}

TEST(OuterRun, RefusesWhatDoesNotGoTogether) {
  const TemporaryFolder place;
  const auto message = [&](const std::vector<std::string>& settings) {
    try {
      small_run(place, "run", settings);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_NE(message({"outer.type=dilocoo"}).find("did you mean 'diloco'"), std::string::npos);
  EXPECT_EQ(message({"outer={type: diloco, every: 0}"}).find("no value"), std::string::npos);
  EXPECT_NE(message({"outer.type=diloco", "sharding.group=1", "ema.decay=0.9"}).find("no average"), std::string::npos);
  EXPECT_NE(
      message({"outer={type: streaming_diloco, every: 2}", "sharding.group=1"}).find("there are 1 to 2 fragments"),
      std::string::npos);
  EXPECT_NE(message({"outer={type: streaming_diloco, every: 4, delay: 4}", "sharding.group=1"})
                .find("delayed by 0 to 3 steps"),
            std::string::npos);
  EXPECT_NE(message({"outer={type: local_sgd, rate: 0.5}", "sharding.group=1"}).find("applies only when"),
            std::string::npos);
  EXPECT_NE(message({"outer={type: sparse_loco, chunk: 4, keep: 5}"}).find("1 to 4 numbers"), std::string::npos);
  EXPECT_NE(message({"outer={type: demo, chunk: 4, keep: 5}"}).find("1 to 4 components"), std::string::npos);
  EXPECT_EQ(message({"outer={type: streaming_diloco, every: 8}", "sharding.group=1"}), "");
}

}  // namespace
}  // namespace keel
