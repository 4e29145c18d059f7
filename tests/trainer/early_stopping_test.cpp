// Runs that end when they do not get better, and best checkpoints.

#include "keel/trainer/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
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
  for (const char* digit : {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "99"})
    EXPECT_EQ(mode_by_name(concat("valid/top", digit)), MetricMode::max) << digit;
  for (const char* none : {"topx", "top1x", "top/", "top:", "atop"})
    EXPECT_EQ(mode_by_name(none), std::nullopt) << none;
  const auto is_better = [](const char* text, double value, std::optional<double> best) {
    return MetricRule::parse(text, MetricMode::automatic, 0.25).is_better({value}, {best});
  };
  EXPECT_TRUE(is_better("loss", 1, std::nullopt));
  EXPECT_TRUE(is_better("loss", 1, 1.5));
  EXPECT_FALSE(is_better("loss", 1, 1.25)) << "a gain of min_delta is none";
  EXPECT_FALSE(is_better("loss", 2, 1));
  EXPECT_TRUE(is_better("loss:max", 2, 1));
  EXPECT_FALSE(is_better("loss:max", 1.25, 1));
  EXPECT_TRUE(MetricRule::parse("loss", MetricMode::max).is_better({2}, {1}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(is_better("loss", nan, std::nullopt));
  EXPECT_FALSE(is_better("loss", nan, 1));
}

TEST(MetricRule, WantsAllOfItsValuesToBeBetterAndWithinTheirLimits) {
  const MetricRule rule = MetricRule::parse("f1@dev@test:max>0.5+loss<2");
  EXPECT_EQ(rule.text(), "f1@dev@test:max>0.5+loss<2");
  ASSERT_EQ(rule.terms().size(), 2u);
  EXPECT_EQ(rule.terms()[0].sets, (std::vector<std::string>{"dev", "test"}));
  const std::vector<std::optional<double>> best = {0.6, 1};
  EXPECT_TRUE(rule.is_better({0.7, 0.9}, best));
  EXPECT_FALSE(rule.is_better({0.7, 1.1}, best)) << "one is worse";
  EXPECT_FALSE(rule.is_better({0.6, 0.9}, best)) << "one is the same";
  EXPECT_TRUE(rule.is_better({0.51, 1.9}, {}));
  EXPECT_FALSE(rule.is_better({0.5, 1.9}, {}));
  EXPECT_FALSE(rule.is_better({0.7, 2}, {}));
  for (const char* wrong :
       {"", "+loss", "loss+", "loss@", "loss@a@", "a b", "loss<", "loss<x", "loss<1>0", "loss:mean"})
    EXPECT_NE(error_of([&] { MetricRule::parse(wrong); }).find("expects a value of evaluations, or several as in"),
              std::string::npos)
        << wrong;
}

TEST(MetricRule, FindsItsValuesByTheirNamesAndMeansOfSets) {
  const MetricValues sets = {{"dev/f1", 0.5}, {"test/f1", 0.75}, {"far/f1", 0.25}, {"dev/loss", 1}, {"test/loss", 2}};
  const auto value = [](const MetricValues& values, const char* text) {
    return MetricRule::parse(text).values_in(values, "key").front();
  };
  EXPECT_EQ(value(sets, "dev/f1"), 0.5);
  EXPECT_EQ(value(sets, "f1@dev@test"), 0.625);
  EXPECT_EQ(value(sets, "f1"), 0.5) << "of all sets that have it";
  EXPECT_EQ(value(sets, "validation_loss"), 1.5);
  EXPECT_EQ(value(sets, "validation_loss@test"), 2);
  EXPECT_EQ(value({{"validation_loss", 3}, {"others/loss", 5}}, "loss"), 3);
  EXPECT_EQ(error_of([&] { value(sets, "f1@dev@none"); }),
            "key: an evaluation gives no 'none/f1'; it gives dev/f1, dev/loss, far/f1, test/f1, test/loss");
  EXPECT_EQ(error_of([&] { value({}, "f1"); }), "key: an evaluation gives no 'f1'; it gives nothing");
}

TEST(JudgedRules, AreKeptByTheirTextsAndBeginAnewWhereTheyAreNew) {
  LoopState state;
  state.step = 3;
  state.metrics = {{"f1", 0.5}, {"loss", 2}};
  const auto rules = [] { return JudgedRules({MetricRule::parse("f1"), MetricRule::parse("f1+loss")}); };
  JudgedRules first = rules();
  for (JudgedRule& each : first.all()) EXPECT_TRUE(each.judge(state, "key"));
  state.step = 6;
  state.metrics = {{"f1", 0.75}, {"loss", 3}};
  EXPECT_TRUE(first.all()[0].judge(state, "key"));
  EXPECT_FALSE(first.all()[1].judge(state, "key"));
  JudgedRules again({MetricRule::parse("f1+loss"), MetricRule::parse("loss"), MetricRule::parse("f1")});
  again.load(Json::parse(first.save().dump()));
  EXPECT_EQ(again.all()[0].best_step(), 3);
  EXPECT_EQ(again.all()[0].missed(), 1);
  EXPECT_EQ(again.all()[1].best_step(), -1);
  EXPECT_EQ(again.all()[2].best_step(), 6);
  EXPECT_FALSE(again.all()[2].judge(state, "key")) << "no more than before";
  JudgedRules one({MetricRule::parse("loss")});
  one.load(Json::parse(R"({"best": 2.5, "step": 4, "missed": 1})"));
  EXPECT_EQ(one.all()[0].best_step(), 4) << "of a checkpoint that knew one rule";
  EXPECT_FALSE(one.all()[0].judge(state, "key"));
  EXPECT_EQ(one.all()[0].missed(), 2);
  EXPECT_EQ(error_of([] {
              JudgedRules({MetricRule::parse("f1"), MetricRule::parse("f1")});
            }),
            "the rule f1 is there twice");
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

TEST(EarlyStopping, GoesOnUntilThePatienceOfEachRuleIsSpent) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config config =
        still_run(place, "run",
                  {"early_stopping={metric: [validation_loss<0, loss, loss+validation_loss], patience: [1, 3, 2]}"});
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config), "again.yaml")), to_yaml(config));
    const auto told = train_by(n, config);
    EXPECT_EQ(told[0]->losses.size(), 8u) << "evaluated first after step 2, and then three times";
    EXPECT_NE(
        told[0]->messages.find("validation_loss<0 has not become better in 4 evaluations, and loss has not become "
                               "better in 3 evaluations since step 2, and loss+validation_loss"),
        std::string::npos)
        << told[0]->messages;
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
  const auto refused = [&](const char* rules) {
    return error_of([&] { still_run(place, "run", {concat("early_stopping=", rules)}); });
  };
  EXPECT_EQ(refused("{metric: cost:min, patience: 1}"), "");
  EXPECT_NE(refused("{metric: [loss, f1], patience: [1, 2, 3]}").find("one for each of the 2 rules, and has 3"),
            std::string::npos);
  EXPECT_NE(refused("{metric: [loss, f1], patience: [1, 0]}").find("a rule needs a patience of 1 at least"),
            std::string::npos);
  EXPECT_NE(refused("{metric: [loss, loss], patience: 1}").find("has a rule twice"), std::string::npos);
}

TEST(EarlyStopping, WritesOnePatienceAsANumberAndSeveralAsAList) {
  const TemporaryFolder place;
  const auto expect_written = [&](const std::string& metric, const std::string& patience) {
    const std::string text =
        to_yaml(small_run(place, "run", {concat("early_stopping={metric: ", metric, ", patience: ", patience, "}")}));
    EXPECT_NE(text.find(concat("  patience: ", patience, "\n")), std::string::npos) << text;
  };
  expect_written("loss", "3");
  expect_written("[loss, f1]", "[3, 4]");
  expect_written("[loss, f1, mae]", "[3, 4, 5]");
}

// One that rises from its first evaluation on has its best there.
TEST(BestCheckpoint, IsFoundByItsNameWhereTheRunHasOne) {
  const TemporaryFolder place;
  const auto run = [&](const char* name, const char* rate, const char* best) {
    const Config config =
        small_run(place, name,
                  {"steps=3", "model.layers=1", "eval.every=1", "checkpoint.every=1", "checkpoint.keep=1",
                   "scheduler={type: constant}", concat("optimizer.lr=", rate), best});
    train_by(1, config);
    return config;
  };
  const auto best_of = [](const Config& config) { return find_best_checkpoint(config.run, keel_keys()).state.step; };
  const Config falls = run("falls", "1e-2", "checkpoint.best=validation_loss"),
               rises = run("rises", "3", "checkpoint.best=validation_loss"), none = run("none", "1e-2", "seed=1");
  EXPECT_EQ(best_of(falls), 3);
  EXPECT_EQ(best_of(rises), 1);
  EXPECT_EQ(RunFolder(rises.run).checkpoint_steps(), (Steps{1, 3})) << "the best one stays beside the newest";
  EXPECT_EQ(error_of([&] { best_of(none); }),
            concat("the run in '", none.run,
                   "' names no best checkpoint; checkpoint.best says which value of evaluations is to be the best"));
  EXPECT_EQ(error_of([&] { find_best_checkpoint(RunFolder(falls.run).checkpoint(3), keel_keys()); }),
            concat("'", RunFolder(falls.run).checkpoint(3), "' is one checkpoint; leave --best out"));
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

TEST(BestCheckpoint, OfEachRuleIsNamedAndStays) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const auto config = [&](std::vector<std::string> more) {
      more.insert(more.begin(),
                  {"eval.every=1", "checkpoint.every=1", "checkpoint.keep=1", "scheduler={type: constant}",
                   "checkpoint.best=[validation_loss, loss:max, loss<0, loss:max+validation_loss]"});
      return small_run(place, "run", more);
    };
    train_by(n, config({"steps=6"}));
    train_by(n, config({"steps=12", "resume=auto", "optimizer.lr=3"}));
    const RunFolder folder(place / "run");
    EXPECT_EQ(folder.named_by(folder.best()), "step-00000006");
    const std::string worst = folder.named_by(folder.best_by("loss:max"));
    EXPECT_GE(worst, "step-00000007") << "its loss is the highest";
    EXPECT_EQ(folder.named_by(folder.best_by("loss<0")), "");
    EXPECT_EQ(folder.named_by(folder.best_by("loss:max+validation_loss")), "step-00000001")
        << "none lies both above and below the first";
    std::set<std::int64_t> kept = {1, 6, *RunFolder::step_named(worst), 12};
    EXPECT_EQ(folder.checkpoint_steps(), Steps(kept.begin(), kept.end())) << n;
    EXPECT_EQ(list_checkpoints(place / "run").all_best.size(), 3u);
  }
}

}  // namespace
}  // namespace keel
