// Runs that end when they do not get better, and best checkpoints.

#include "keel/trainer/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/trainer/checkpoint_list.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;

TEST(MetricRule, GoesByNamesAndByTheLeastGain) {
  EXPECT_EQ(mode_by_name("validation_loss"), MetricMode::min);
  EXPECT_EQ(mode_by_name("others/loss"), MetricMode::min);
  EXPECT_EQ(mode_by_name("loss/accuracy"), MetricMode::max);
  EXPECT_EQ(mode_by_name("ndcg10"), MetricMode::max);
  EXPECT_EQ(mode_by_name("macro_f1"), MetricMode::max);
  EXPECT_EQ(mode_by_name("glossy"), std::nullopt);
  const MetricRule falls{"loss", MetricMode::automatic, 0.25}, rises{"loss", MetricMode::max, 0.25};
  EXPECT_TRUE(falls.is_better(1, std::nullopt));
  EXPECT_TRUE(falls.is_better(1, 1.5));
  EXPECT_FALSE(falls.is_better(1, 1.25)) << "a gain of min_delta is none";
  EXPECT_FALSE(falls.is_better(2, 1));
  EXPECT_TRUE(rises.is_better(2, 1));
  EXPECT_FALSE(rises.is_better(1.25, 1));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(falls.is_better(nan, std::nullopt));
  EXPECT_FALSE(falls.is_better(nan, 1));
}

// A rate of 0 learns nothing, so the second evaluation is the first that is not better.
Config still_run(const TemporaryFolder& place, const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"optimizer.lr=1e-30", "scheduler={type: constant}", "eval.every=2", "checkpoint.every=100",
                             "early_stopping.patience=2"});
  return small_run(place, name, more);
}

TEST(EarlyStopping, EndsTheRunAtTheSameEvaluationByAnyNumberOfRanksInAnyStage) {
  for (const int n : {1, 2, 3})
    for (const char* stage : {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"}) {
      const TemporaryFolder place;
      const Config config = still_run(place, "run", {concat("strategy=", stage)});
      run_ranks(n, [&](Communicator& ranks) {
        Recorder recorder;
        const TrainResult result = train(config, recorder, ranks);
        EXPECT_EQ(result.step, 6) << stage << " by " << n;
        EXPECT_EQ(result.end, TrainEnd::callback);
        EXPECT_EQ(recorder.checkpoints, (Steps{6}));
        const std::string said =
            "ends after step 6: validation_loss has not become better in 2 evaluations since step 2";
        EXPECT_EQ(recorder.messages.find(said) != std::string::npos, ranks.rank() == 0) << recorder.messages;
      });
    }
}

TEST(EarlyStopping, CountsOnInAResumedRunAndGoesOnWherePatienceHasGrown) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    train_by(n, still_run(place, "run"), n == 1 ? 5 : 4);  // several ranks hear of the signal a step later
    const auto resumed = [&](const char* patience) {
      TrainResult result;
      run_ranks(n, [&](Communicator& ranks) {
        Recorder recorder;
        const TrainResult mine = train(still_run(place, "run", {"resume=auto", patience}), recorder, ranks);
        if (ranks.rank() == 0) result = mine;
      });
      return result;
    };
    EXPECT_EQ(resumed("early_stopping.patience=2").step, 6);
    const TrainResult again = resumed("early_stopping.patience=2");
    EXPECT_EQ(again.step, 6) << "it has ended";
    EXPECT_EQ(again.end, TrainEnd::callback);
    EXPECT_EQ(resumed("early_stopping.patience=4").step, 10);
  }
}

TEST(EarlyStopping, SaysWhatEvaluationsGiveWhereTheyDoNotGiveItsMetric) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const std::string told =
        error_of([&] { train_by(n, still_run(place, "run", {"early_stopping.metric=accuracy"})); });
    EXPECT_NE(told.find("early_stopping.metric: an evaluation gives no 'accuracy'; it gives validation_loss"),
              std::string::npos)
        << told;
  }
  const TemporaryFolder place;
  EXPECT_NE(error_of([&] { still_run(place, "run", {"early_stopping.metric=cost"}); }).find("early_stopping.mode"),
            std::string::npos)
      << "nothing says whether less is better";
  EXPECT_EQ(still_run(place, "run", {"early_stopping.metric=cost", "early_stopping.mode=min"}).early_stopping.mode,
            MetricMode::min);
}

// Every step is evaluated; the rate is so high in the end that the loss rises.
TEST(BestCheckpoint, IsNamedAndStaysWhileOthersGo) {
  for (const int n : {1, 2})
    for (const char* async : {"checkpoint.async=false", "checkpoint.async=true"}) {
      const TemporaryFolder place;
      const std::vector<std::string> keys = {
          "eval.every=1", "checkpoint.every=1",        "checkpoint.keep=1", "checkpoint.best=validation_loss",
          async,          "scheduler={type: constant}"};
      const auto config = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all = keys;
        all.insert(all.end(), more.begin(), more.end());
        return small_run(place, "run", all);
      };
      train_by(n, config({"steps=6"}));
      const RunFolder folder(place / "run");
      EXPECT_EQ(folder.named_by(folder.best()), "step-00000006") << "it learns";
      train_by(n, config({"steps=12", "resume=auto", "optimizer.lr=3"}));
      EXPECT_EQ(folder.named_by(folder.best()), "step-00000006");
      EXPECT_EQ(folder.checkpoint_steps(), (Steps{6, 12}));
      const CheckpointList list = list_checkpoints(place / "run");
      EXPECT_EQ(list.best, "step-00000006");
      EXPECT_EQ(list.latest, "step-00000012");
    }
}

}  // namespace
}  // namespace keel
