// Decoders of the catalog in runs: stages, ranks, resumption and recomputation do not change what is learnt.

#include <gtest/gtest.h>

#include "keel/models/catalog.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using testing::Recorder;
using testing::small_run;
using testing::TemporaryFolder;
using testing::train_by;
using testing::weights_of;

// What its model is allowed to have, so that the smallest shapes use all of it.
std::vector<std::string> keys_of_decoder(const ModelEntry& entry) {
  std::vector<std::string> keys = {concat("model.type=", entry.name), "steps=6", "model.attention_dropout=0.1"};
  const std::pair<std::string_view, std::string_view> wanted[] = {
      {"model.kv_heads", "1"}, {"model.hidden", "24"}, {"model.window", "5"}, {"model.head_size", "12"}};
  for (const auto& [key, value] : wanted)
    for (const KeyRow& row : entry.rows)
      if (row.key == key) keys.push_back(concat(key, '=', value));
  return keys;
}

class ModelStages : public ::testing::TestWithParam<std::string> {
 protected:
  Config run(const TemporaryFolder& place, const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> keys = keys_of_decoder(*find_model(GetParam()));
    keys.insert(keys.end(), more.begin(), more.end());
    return small_run(place, name, keys);
  }
};

TEST_P(ModelStages, GiveTheSameBitsByOneTwoAndThreeRanks) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    std::vector<double> losses;
    std::string weights;
    for (const std::string stage : {"ddp", "zero1", "zero2", "zero3"}) {
      const Config config = run(place, stage, {concat("strategy=", stage, "-fp32")});
      const auto recorders = train_by(n, config);
      if (losses.empty()) losses = recorders[0]->losses;
      if (weights.empty()) weights = weights_of(config);
      ASSERT_EQ(losses.size(), 6U);
      for (const auto& recorder : recorders) EXPECT_EQ(recorder->losses, losses) << stage << n;
      EXPECT_EQ(weights_of(config), weights) << stage << n;
    }
  }
}

TEST_P(ModelStages, RecomputedAndResumedRunsLearnTheSame) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    const std::string strategy = concat("strategy=zero3-", precision);
    const Config whole = run(place, "whole", {strategy});
    train_by(2, whole);
    const Config again = run(place, "again", {strategy, "model.recompute=true"});
    train_by(2, again);
    EXPECT_EQ(weights_of(again), weights_of(whole)) << precision;
    train_by(2, run(place, "parts", {strategy}), 3);
    const Config rest = run(place, "parts", {strategy, "resume=auto"});
    train_by(2, rest);
    EXPECT_EQ(weights_of(rest), weights_of(whole)) << precision;
  }
}

// Without head norms and windows, and with both; GPT-2 is in all other tests of runs.
INSTANTIATE_TEST_SUITE_P(Decoders, ModelStages, ::testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace keel
