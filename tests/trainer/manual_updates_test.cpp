// What a run makes of the updates of a task that steers its own step: those that are skipped, those of a model that is
// trained later than others or with an optimizer of its own, and losses that differ between ranks.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/nn/layers.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

struct PairNet : Module {
  Linear layer{2, 1};
  void visit(Visitor& v) override { v("layer", layer); }
};

// A weight beside the rows.
Collator with_halves() {
  return [each = stack()](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    each(rows, info, batch);
    batch.set_weight("halves", static_cast<double>(rows.size()) / 2);
  };
}

Example pair_point(std::int64_t i) {
  const auto x = static_cast<float>(i);
  return Example().set("x", Numbers{{2}, {1 + x / 8, 1 - x / 16}});
}

// Two models, each with a loss of its own.
class PairTask : public ManualTask {
 public:
  explicit PairTask(const TaskSite& site) : site_(site), way_(site.settings.text("task.way")) {
    static std::atomic<int> made = 0;
    is_odd_ = made++ % 2 == 1;
  }
  std::vector<StackModel> stacks() override {
    return {{.name = "left", .module = &left_}, {.name = "right", .module = &right_}};
  }
  Data data() override { return make_data(site_, made_dataset(24, "pair", pair_point), 0, with_halves()); }
  void validation_step(const Batch&, Forward&, Metrics&) override {}

  void training_step(ManualStep& step) override {
    const LossFunction left = loss_in(left_, step.number()), right = loss_in(right_, step.number());
    const LossFunction skipped = [this](const Batch& batch, Forward& pass) -> Loss {
      return mean(sqrt(square(scale(right_.layer(input(batch, "x", pass)), 0))));  // 0, without a gradient
    };
    const LossFunction seven = [this](const Batch& batch, Forward& pass) -> Loss {
      return mean(shift(scale(left_.layer(input(batch, "x", pass)), 0), 7));
    };
    if (way_ == "late" && step.number() < 3) return step.train("left", loss_in(left_, 1));
    if (way_ != "turns" || step.number() % 2 == 1) step.train("left", way_ == "late" ? loss_in(left_, 1) : left);
    if (way_ == "outcome") {
      const double loss = step.outcome("left").loss;
      step.accumulate("left", seven);
      EXPECT_EQ(step.outcome("left").loss, loss) << "of the update, not of what was accumulated since";
      step.zero_grad("left");
    }
    if (way_ == "tries")
      for (int i = 0; i < 4; ++i) step.train("right", skipped);
    step.train("right", way_ == "skips" ? skipped : right);
  }

 private:
  // From step 3 on one rank has other weights than it had, or than the others have.
  LossFunction loss_in(const PairNet& net, std::int64_t step) const {
    const bool is_other = step >= 3 && is_odd_;
    const bool has_both = way_ == "fewer_weights" ? !is_other : (way_ == "more_weights" || way_ == "late") && is_other;
    return [&net, has_both](const Batch& batch, Forward& pass) {
      EXPECT_TRUE(pass.training);
      const Variable term = mean(square(net.layer(input(batch, "x", pass))));
      Loss loss;
      loss.add("rows", term, "rows");
      if (has_both) loss.add("halves", term, "halves", 0.5);
      return loss;
    };
  }

  TaskSite site_;
  std::string way_;
  bool is_odd_ = false;
  PairNet left_, right_;
};

KeyRow way_row() {
  return {.key = "task.way",
          .type = KeyType::choice,
          .standard = "plays",
          .help = "How.",
          .choices = "plays|late|turns|outcome|tries|skips|more_weights|fewer_weights",
          .on_resume = ResumeRule::ignores};
}

const std::shared_ptr<const ConfigKeys>& pair_keys() {
  static const auto made = keys_of_task<PairTask>("pair", {way_row()}, {"left", "right"});
  return made;
}

Config pair_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  return task_run(pair_keys(), R"(
batch: {global: 4, micro: 2}
optimizer: {lr: 1e-2}
checkpoint: {every: 0}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

std::string pair_refusal(int n, const Config& config) {
  return error_of([&] { train_by(n, config); });
}

std::int64_t count_of(std::string_view words, std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

std::vector<Json> pair_records(const Config& config) {
  std::vector<Json> steps;
  for (Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("lr")) steps.push_back(std::move(record));
  return steps;
}

TEST(ManualUpdates, ARankWhoseLossGetsOtherWeightsEndsAllInWords) {
  const TemporaryFolder place;
  for (const int n : {2, 3})
    for (const auto& [way, why] :
         {std::pair("more_weights",
                    "the loss of 'left' has means over rows, halves, and its first one in this session "
                    "had means over rows;"),
          {"fewer_weights",
           "the loss of 'left' has means over rows, and its first one in this session had means over "
           "rows, halves;"}}) {
      const Config config =
          pair_run(place, concat(way, n), {"steps=4", "strategy=zero3-fp32", concat("task.way=", way)});
      const std::string told = pair_refusal(n, config);
      EXPECT_NE(told.find(concat("step 3: ", why)), std::string::npos) << told;
    }
}

TEST(ManualUpdates, TheFirstLossOfAModelThatIsTrainedLaterIsComparedToo) {
  const TemporaryFolder place;
  const std::string told = pair_refusal(2, pair_run(place, "run", {"steps=4", "strategy=zero2-fp32", "task.way=late"}));
  EXPECT_NE(told.find("step 3: ranks have different losses"), std::string::npos) << told;
}

TEST(ManualUpdates, WhatEndsARunAfterAStepsUpdatesLeavesACheckpointOfThatStep) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config config = pair_run(place, "run", {"steps=12", "task.way=skips"});
    const std::string told = pair_refusal(n, config);
    EXPECT_NE(told.find("'right': 10 steps in a row had gradients that were not finite, the last at step 10"),
              std::string::npos)
        << told;
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), std::vector<std::int64_t>{10});
    const Manifest manifest = read_manifest(RunFolder(config.run).checkpoint(10));
    EXPECT_EQ(manifest.state.at("stacks").at("left").at("taken").integer(), 10);
    EXPECT_EQ(manifest.state.at("stacks").at("right").at("taken").integer(), 0);
    EXPECT_EQ(pair_records(config).size(), 10U) << "the step is reported, too";
    const auto more = train_by(n, pair_run(place, "run", {"steps=12", "resume=auto"}));
    EXPECT_EQ(more[0]->losses.size(), 2U);
  }
}

TEST(ManualUpdates, EachOneThatIsSkippedIsTold) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    const Config config = pair_run(place, concat("run", n), {"steps=2", "task.way=tries"});
    const auto told = train_by(n, config);
    for (const int step : {1, 2})
      EXPECT_EQ(count_of(concat("'right': step ", step, " was skipped: the gradient of "), told[0]->messages), 4)
          << told[0]->messages;
    EXPECT_EQ(count_of("'left'", told[0]->messages), 0);
  }
}

TEST(ManualUpdates, AModelThatLearntNothingIsAnError) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    const std::string told = pair_refusal(n, pair_run(place, concat("run", n), {"steps=5", "task.way=skips"}));
    EXPECT_NE(told.find("'right': every step of this run was skipped, and nothing learnt"), std::string::npos) << told;
  }
}

TEST(ManualUpdates, AnOutcomeHasTheLossOfItsUpdate) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) train_by(n, pair_run(place, concat("run", n), {"steps=2", "task.way=outcome"}));
}

TEST(ManualUpdates, RatesOfGroupsAreRecordedWhereTheirModelIsUpdated) {
  const TemporaryFolder place;
  const Config config = pair_run(place, "run",
                                 {"steps=4", "task.way=turns", "stacks.right=[optimizer.lr=3e-2]",
                                  "optimizer.groups=[{match: bias, lr_factor: 2}]"});
  train_by(1, config);
  const std::vector<Json> records = pair_records(config);
  ASSERT_EQ(records.size(), 4U);
  for (const Json& record : records) {
    const bool is_turn = record.at("step").integer() % 2 == 1;
    ASSERT_EQ(record.contains("lr/group_1"), is_turn);
    if (is_turn) { EXPECT_EQ(record.at("lr/group_1").number(), 2 * record.at("train/left/lr").number()); }
  }
}

// A loss scale where there is one.
TEST(ManualUpdates, RecordsHaveTheLossScaleOfEachModelThatHasOne) {
  const TemporaryFolder place;
  for (const char* strategy : {"zero1-fp32", "zero1-fp16"}) {
    const Config config = pair_run(
        place, strategy,
        {"steps=2", concat("strategy=", strategy), "loss_scale.initial=64", "stacks.right=[loss_scale.initial=32]"});
    train_by(2, config);
    const std::vector<Json> records = pair_records(config);
    ASSERT_EQ(records.size(), 2U);
    for (const Json& record : records) {
      const bool has_scale = std::string_view(strategy).ends_with("fp16");
      ASSERT_EQ(record.contains("train/left/loss_scale"), has_scale) << strategy;
      if (!has_scale) continue;
      EXPECT_EQ(record.at("train/left/loss_scale").number(), 64);
      EXPECT_EQ(record.at("train/right/loss_scale").number(), 32);
    }
  }
}

// Of the communicator that all engines have in common, and of each one's own groups.
TEST(ManualUpdates, BytesThatAreSentAreThoseOfAllModels) {
  const TemporaryFolder place;
  for (const char* strategy : {"ddp-fp32", "zero3-fp32"})
    for (const char* group : {"0", "2"}) {
      const Config config = pair_run(place, concat(strategy, group),
                                     {"steps=4", concat("strategy=", strategy), concat("sharding.group=", group)});
      train_by(4, config);
      const Context context = Context::create({.threads = 1});
      const std::unique_ptr<TaskBase> task = make_task(config, context);
      const std::vector<Json> records = pair_records(config);
      EXPECT_EQ(records.at(2).at("sent_bytes").integer(), plan_run(config, *task, 4, true).traffic.sent())
          << strategy << ' ' << group;
    }
}

TEST(ManualUpdates, AResumeComparesWhatEachModelsOptimizerKeeps) {
  const TemporaryFolder place;
  const std::vector<std::string> none = {"steps=2"};
  train_by(1, pair_run(place, "run", none));
  const auto again = [&](const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), {"steps=4", "resume=auto"});
    return pair_refusal(1, pair_run(place, run, more));
  };
  const std::string told = again("run", {"stacks.right=[optimizer.type=SGD]"});
  EXPECT_NE(told.find("model 'right' of '"), std::string::npos) << told;
  EXPECT_NE(told.find("was trained by AdamW, which keeps "), std::string::npos) << told;
  const std::vector<std::string> both = {"stacks.left=[optimizer.type=SGD]", "stacks.right=[optimizer.type=SGD]"};
  std::vector<std::string> first = both, then = both;
  first.emplace_back("steps=2");
  then.emplace_back("optimizer.type=Adagrad");
  train_by(1, pair_run(place, "overridden", first));
  EXPECT_EQ(again("overridden", then), "") << "no model has the run's optimizer";
}

TEST(ManualUpdates, AScheduleOfAModelIsHeldAgainstTheStepsOfItsEpochs) {
  const TemporaryFolder place;
  const std::string told = pair_refusal(1, pair_run(place, "run", {"epochs=1", "stacks.right=[scheduler.warmup=100]"}));
  EXPECT_NE(told.find("stacks.right: scheduler."), std::string::npos) << told;
  EXPECT_NE(told.find("with 6 steps in 1 epochs"), std::string::npos) << told;
  EXPECT_FALSE(std::filesystem::exists(RunFolder(place / "run").metrics()));
}

// Their states grow with the rows that a run meets.
TEST(ManualUpdates, MemoryIsNotPlannedWhereAnyModelsOptimizerKeepsRows) {
  const TemporaryFolder place;
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"steps=2", "clip=0"});
    const Config config = pair_run(place, "run", more);
    std::string told;
    run_ranks(1, [&](Communicator& ranks) {
      const Context context = Context::create({.threads = 1});
      const std::unique_ptr<TaskBase> task = make_task(config, context);
      told = error_of([&] { check_memory(config, *task, ranks, context, {.machine = {1, true}, .device = {}}); });
    });
    return told;
  };
  EXPECT_TRUE(refusal({}).starts_with("training needs "));
  EXPECT_EQ(refusal({"stacks.right=[optimizer.type=SparseAdam]"}), "");
  EXPECT_TRUE(
      refusal({"optimizer.type=SparseAdam", "stacks.left=[optimizer.type=SGD]", "stacks.right=[optimizer.type=SGD]"})
          .starts_with("training needs "))
      << "no model has the run's optimizer";
}

TEST(ManualUpdates, KeysOfModelsAreTheTasks) {
  const TaskEntry& pair = *pair_keys()->tasks().find("pair");
  EXPECT_TRUE(is_key_of(pair, "task.way"));
  EXPECT_TRUE(is_key_of(pair, "stacks.right"));
  EXPECT_FALSE(is_key_of(pair, "stacks.middle"));
}

// One that has a single loss, and says that it trains two models.
class TwoWithOneLoss : public Task {
 public:
  explicit TwoWithOneLoss(const TaskSite& site) : site_(site) {}
  Module& model() override { return first_; }
  std::vector<StackModel> stacks() override {
    return {{.name = "left", .module = &first_}, {.name = "right", .module = &second_}};
  }
  Data data() override { return make_data(site_, made_dataset(24, "pair", pair_point), 0, stack()); }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mean(square(first_.layer(input(batch, "x", pass))));
  }

 private:
  TaskSite site_;
  PairNet first_, second_;
};

class SteersOneWithoutAName : public ManualTask {
 public:
  explicit SteersOneWithoutAName(const TaskSite& site) : site_(site) {}
  std::vector<StackModel> stacks() override { return {{.module = &net_}}; }
  Data data() override { return make_data(site_, made_dataset(24, "pair", pair_point), 0, stack()); }
  void training_step(ManualStep& step) override {
    step.train("", [this](const Batch& batch, Forward& pass) -> Loss {
      return mean(square(net_.layer(input(batch, "x", pass))));
    });
  }

 private:
  TaskSite site_;
  PairNet net_;
};

TEST(ManualUpdates, OnlyATaskThatSteersItsStepsTrainsModelsByName) {
  const TemporaryFolder place;
  const auto refusal = [&](const std::shared_ptr<const ConfigKeys>& keys) {
    return pair_refusal(1, task_run(keys, "steps: 2\nbatch: {global: 4, micro: 2}\nthreads: 1\n", place, "run"));
  };
  const std::string two = refusal(keys_of_task<TwoWithOneLoss>("two", {}, {"left", "right"})),
                    nameless = refusal(keys_of_task<SteersOneWithoutAName>("nameless"));
  EXPECT_NE(two.find("the task two trains several models; one that steers its own steps (ManualTask) does"),
            std::string::npos)
      << two;
  EXPECT_NE(nameless.find("the task nameless steers its own steps and trains a model without a name"),
            std::string::npos)
      << nameless;
}

}  // namespace
}  // namespace keel
