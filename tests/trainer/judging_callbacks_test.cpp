// Early stopping, best checkpoints and averages of weights, event by event.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "keel/optim/optimizer.h"
#include "keel/runtime/file.h"
#include "keel/trainer/early_stopping.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/weight_averages.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/staged_view.h"

namespace keel {
namespace {

using namespace testing;

std::vector<MetricRule> parsed_rules(const std::vector<const char*>& texts) {
  std::vector<MetricRule> rules;
  for (const char* each : texts) rules.push_back(MetricRule::parse(each));
  return rules;
}

TEST(JudgingCallbacks, StopWhereThePatienceOfEachRuleIsSpentAndSayWhatWasMissed) {
  struct Case {
    std::vector<const char*> rules;
    std::vector<std::int64_t> patience;
    std::vector<double> losses;  // of the evaluations after steps 2, 4, ...
    std::string told;            // after the last of them; nothing before
  };
  for (const Case& each : std::vector<Case>{
           {{"loss"}, {1}, {3, 2, 1}, ""},
           {{"loss"}, {1}, {3, 3}, "loss has not become better in 1 evaluation since step 2"},
           {{"loss"}, {2}, {3, 4, 2, 2}, ""},
           {{"loss"}, {2}, {3, 4, 2, 2, 5}, "loss has not become better in 2 evaluations since step 6"},
           {{"loss<0"}, {2}, {3, 2}, "loss<0 has not become better in 2 evaluations"},
           {{"loss", "loss:max"}, {1, 1}, {3, 2}, ""},
           {{"loss", "loss:max"},
            {1, 3},
            {3, 2, 2, 2},
            "loss has not become better in 2 evaluations since step 4, and loss:max has not become better in 3 "
            "evaluations since step 2"},
           {{"loss", "loss:max"},
            {3, 1},
            {3, 4, 4, 4},
            "loss has not become better in 3 evaluations since step 2, and loss:max has not become better in 2 "
            "evaluations since step 4"}}) {
    EarlyStopping stopping(parsed_rules(each.rules), each.patience);
    StagedView view;
    for (std::size_t i = 0; i < each.losses.size(); ++i) {
      EXPECT_EQ(view.take_told(), "") << each.told << " too early";
      view.now.step += 2;
      view.now.metrics["loss"] = 0;  // of an evaluation that failed
      stopping.evaluation_end(view, false);
      view.now.metrics["loss"] = each.losses[i];
      stopping.evaluation_end(view, true);
    }
    const std::string told = view.take_told();
    EXPECT_EQ(told, each.told.empty() ? "" : concat("stop: ", each.told, " (early_stopping)\n"));
    EarlyStopping again(parsed_rules(each.rules), each.patience);
    again.load(Json::parse(stopping.save().numbers.dump()));
    again.resumed(view);
    EXPECT_EQ(view.take_told(), told) << "in a resumed run";
  }
  const auto refusal = [](const std::vector<const char*>& rules, const std::vector<std::int64_t>& patience) {
    return error_of([&] { EarlyStopping(parsed_rules(rules), patience); });
  };
  EXPECT_EQ(refusal({"loss"}, {1, 2}), "2 numbers of patience are for 1 rules");
  EXPECT_EQ(refusal({"loss", "f1"}, {1}), "1 numbers of patience are for 2 rules");
  EXPECT_EQ(refusal({}, {}), "0 numbers of patience are for 0 rules");
  EXPECT_EQ(refusal({"loss", "f1"}, {1, 2}), "");
}

TEST(JudgingCallbacks, KeepTheBestValueWhereItIsANumber) {
  LoopState state;
  const double infinite = std::numeric_limits<double>::infinity();
  JudgedRules rules(parsed_rules({"f1", "loss"}));
  const auto kept = [](const JudgedRules& of) {
    std::string lines;
    const Json saved = of.save();
    for (const auto& [name, numbers] : saved.at("rules").members()) lines += concat(name, ' ', numbers.dump(), '\n');
    return lines;
  };
  const auto rule = [](const char* name, const char* best, int step, int missed) {
    return concat(name, " {\"best\":[", best, "],\"step\":", step, ",\"missed\":", missed, "}\n");
  };
  EXPECT_EQ(kept(rules), concat(rule("f1", "", -1, 0), rule("loss", "", -1, 0)));
  state.step = 3;
  state.metrics = {{"f1", infinite}, {"loss", 2.5}};
  for (JudgedRule& each : rules.all()) EXPECT_TRUE(each.judge(state, "key"));
  state.step = 5;
  for (JudgedRule& each : rules.all()) EXPECT_FALSE(each.judge(state, "key"));
  EXPECT_EQ(kept(rules), concat(rule("f1", "null", 3, 1), rule("loss", "2.5", 3, 1)));
  // From before there were several rules, which only one of one value takes.
  const auto old = [&](const std::vector<const char*>& texts, const char* numbers) {
    JudgedRules loaded(parsed_rules(texts));
    loaded.load(Json::parse(numbers));
    return kept(loaded);
  };
  EXPECT_EQ(old({"loss"}, R"({"best": 2.5, "step": 4, "missed": 7})"), rule("loss", "2.5", 4, 7));
  EXPECT_EQ(old({"loss"}, R"({"best": null, "step": 4})"), rule("loss", "null", 4, 0));
  EXPECT_EQ(old({"loss+f1"}, R"({"best": 2.5, "step": 4})"), rule("loss+f1", "", -1, 0));
  EXPECT_EQ(old({"loss", "f1"}, R"({"best": 2.5, "step": 4})"), concat(rule("loss", "", -1, 0), rule("f1", "", -1, 0)));
}

TEST(JudgingCallbacks, NameTheBestCheckpointOfEachRuleOnTheFirstRank) {
  const TemporaryFolder place;
  const RunFolder folder(place / "run");
  std::filesystem::create_directories(place / "run/checkpoints");
  for (const int rank : {1, 0}) {
    BestCheckpoint best(parsed_rules({"loss", "f1"}));
    StagedView view(folder.path(), rank);
    const auto evaluated = [&](std::int64_t step, double loss, double f1, bool done = true) {
      view.now.step = step;
      view.now.metrics = {{"loss", loss}, {"f1", f1}};
      best.evaluation_end(view, done);
      return view.take_told();
    };
    const auto saved = [&](std::int64_t step) {
      best.checkpoint_saved(view, folder.checkpoint(step), step);
      return view.take_told();
    };
    EXPECT_EQ(evaluated(0, 1, 1), "") << "before the first step";
    EXPECT_EQ(evaluated(1, 1, 1, false), "") << "failed";
    EXPECT_EQ(evaluated(1, 5, 0.5), "checkpoint of 1\ncheckpoint of 1\n");
    EXPECT_EQ(evaluated(2, 4, 0.25), "checkpoint of 2\n");
    EXPECT_EQ(evaluated(3, 4, 0.25), "");
    for (const std::int64_t step : {1, 2, 3}) EXPECT_EQ(saved(step), "");
    EXPECT_EQ(folder.named_by(folder.best()), rank == 0 ? "step-00000002" : "");
    EXPECT_EQ(folder.named_by(folder.best_by("f1")), rank == 0 ? "step-00000001" : "");
    if (rank != 0) continue;
    std::filesystem::remove_all(place / "run/checkpoints");
    write_text_file(place / "run/checkpoints", "no folder");
    EXPECT_TRUE(saved(2).starts_with("the best checkpoint by loss, of step 2, is not named: ")) << "and trains on";
    EXPECT_TRUE(saved(1).starts_with("the best checkpoint by f1, of step 1, is not named: "));
    EXPECT_EQ(saved(3), "");
  }
}

// An engine of one weight, which the test moves, and an average of it.
class AveragedWeight {
 public:
  explicit AveragedWeight(Communicator& ranks)
      : engine_(net_, testing::context(1), ranks, make_sgd(), {}), view_("", 0, &engine_) {
    set(1);
  }
  StagedView& view() { return view_; }
  void set(double value) {
    at(engine_.weights()) = static_cast<float>(value);
    engine_.adopt_weights();
  }
  double weight() const { return at(engine_.weights()); }
  static double of(Callback& average) { return at(average.save().tensors); }
  // After a step that leaves this weight.
  void step(Callback& average, double value, bool taken = true) {
    ++view_.now.step;
    average.step_begin(view_);
    set(value);
    view_.was_taken = from_values(engine_.context(), std::vector<std::int64_t>{taken ? 1 : 0}, {1});
    average.after_optimizer_step(view_);
  }

 private:
  static float& at(const TensorParts& parts) { return parts.at(0).values.data<float>()[0]; }
  Linear net_{1, 1, false};
  Sharded engine_;
  StagedView view_;
};

TEST(JudgingCallbacks, MoveAveragesByTheirFormulas) {
  run_ranks(1, [](Communicator& ranks) {
    for (const bool warmup : {true, false}) {
      AveragedWeight one(ranks);
      ExponentialAverage ema({.decay = 0.2, .warmup = warmup});
      ema.fit_begin(one.view());
      double expected = 1;
      for (int t = 0; t < 8; ++t) {
        const double weight = 2 + t * t, decay = warmup ? std::min(0.2, (1.0 + t) / (10 + t)) : 0.2;
        const bool taken = t != 3;
        one.step(ema, weight, taken);
        if (taken) expected = decay * expected + (1 - decay) * weight;
        EXPECT_NEAR(AveragedWeight::of(ema), expected, 1e-5 * expected) << warmup << ' ' << t;
        EXPECT_EQ(ema.save().numbers.dump(), concat("{\"updates\":", t + 1, "}"));
      }
      EXPECT_EQ(one.view().take_told(), "");
    }
    for (const std::int64_t start : {1, 3})
      for (const std::int64_t every : {1, 2, 3}) {
        AveragedWeight one(ranks);
        StochasticAverage swa({.start = start, .every = every, .rate_factor = 0.25});
        swa.fit_begin(one.view());
        double sum = 0;
        int joined = 0;
        for (int step = 1; step <= 9; ++step) {
          one.step(swa, step * step);
          EXPECT_EQ(one.view().take_told(), step == start ? concat("rates times 0.25 in ", step, '\n') : "");
          if (step >= start && (step - start) % every == 0) {
            sum += step * step;
            ++joined;
          }
          EXPECT_EQ(swa.save().numbers.dump(), concat("{\"updates\":", joined, "}"));
          EXPECT_NEAR(AveragedWeight::of(swa), joined == 0 ? 1 : sum / joined, 1e-4) << start << every << step;
        }
      }
  });
}

TEST(JudgingCallbacks, SwapAnAverageInForAnEvaluationAlone) {
  run_ranks(1, [](Communicator& ranks) {
    for (const bool evaluates : {true, false}) {
      AveragedWeight one(ranks);
      ExponentialAverage ema({.decay = 0.5, .warmup = false, .evaluates = evaluates});
      ema.fit_begin(one.view());
      one.step(ema, 3);
      ema.evaluation_end(one.view(), true);
      EXPECT_EQ(one.weight(), 3) << "nothing was swapped in";
      for (const bool done : {true, false}) {
        ema.evaluation_begin(one.view());
        EXPECT_EQ(one.weight(), evaluates ? 2 : 3);
        ema.evaluation_end(one.view(), done);
        EXPECT_EQ(one.weight(), 3);
        EXPECT_EQ(AveragedWeight::of(ema), 2);
      }
    }
    AveragedWeight one(ranks);
    StochasticAverage swa({.start = 2, .every = 1, .rate_factor = 1, .evaluates = true});
    swa.fit_begin(one.view());
    for (const auto& [weight, evaluated] : {std::pair(3.0, 3.0), {5, 5}, {9, 7}}) {
      one.step(swa, weight);
      swa.evaluation_begin(one.view());
      EXPECT_EQ(one.weight(), evaluated);
      swa.evaluation_end(one.view(), true);
      EXPECT_EQ(one.weight(), weight);
    }
    EXPECT_EQ(one.view().take_told(), "") << "rates stay";
  });
}

}  // namespace
}  // namespace keel
