// Runs with an optimizer that evaluates the loss itself: stages, restarts, dropout, and what goes wrong within a step.

#include <nlohmann/json.hpp>
#include <sstream>

#include "keel/trainer/make_task.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/step_prediction.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr const char* kSearch =
    "optimizer={type: LBFGS, lr: 1, max_iterations: 4, history: 5, line_search: strong_wolfe}";

Config lbfgs_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {kSearch, "steps=8", "scheduler={type: constant}", "strategy=fp32"};
  settings.insert(settings.end(), more.begin(), more.end());
  return small_run(place, run, settings);
}

// The metric of that name, from each line that has it.
std::vector<double> metric(const Config& config, const char* name) {
  std::vector<double> values;
  std::istringstream lines(read_text_file(RunFolder(config.run).metrics()));
  for (std::string line; std::getline(lines, line);)
    if (const auto record = nlohmann::json::parse(line); record.contains(name)) values.push_back(record[name]);
  return values;
}

TEST(LbfgsRun, LearnsMoreInAStepThanGradientDescent) {
  const TemporaryFolder place;
  const std::vector<std::string> same = {"steps=6", "scheduler={type: constant}", "strategy=fp32", "model.dropout=0",
                                         "clip=0"};
  Recorder search, descent;
  std::vector<std::string> with_search = same, with_descent = same;
  with_search.emplace_back(kSearch);
  with_descent.emplace_back("optimizer={type: SGD, lr: 0.1}");
  const Config config = small_run(place, "lbfgs", with_search);
  train(config, search);
  train(small_run(place, "sgd", with_descent), descent);
  EXPECT_EQ(search.losses.front(), descent.losses.front()) << "a step's loss is that of its first evaluation";
  EXPECT_LT(search.losses.back(), descent.losses.back());
  EXPECT_LT(search.validation, descent.validation);
  const std::vector<double> evaluations = metric(config, "evaluations");
  ASSERT_EQ(evaluations.size(), 6u);
  for (const double each : evaluations) EXPECT_GT(each, 1);
}

TEST(LbfgsRun, ItsPlanIsOfOneEvaluation) {
  const TemporaryFolder place;
  const Config config = lbfgs_run(place, "run", {"steps=3", "strategy=zero2-fp32"});
  train_by(3, config);
  const std::optional<MeasuredRun> run = read_measured_run(config.run);
  ASSERT_TRUE(run.has_value());
  const std::unique_ptr<TaskBase> task = make_task(config);
  EXPECT_EQ(run->optimizer, plan_run(config, *task, 3).memory.optimizer);
  EXPECT_GT(run->optimizer, 0);
  EXPECT_FALSE(run->sent.has_value());
  EXPECT_EQ(error_of([&] { predict_step(config, *run, {}, *task, 4, 0); }),
            "optimizer.type: how often a step of LBFGS evaluates the loss is not predicted");
}

TEST(LbfgsRun, EveryStageEndsInTheSameBits) {
  const TemporaryFolder place;
  for (const int ranks : {2, 3, 4}) {
    std::string first;
    for (const char* stage : {"ddp", "zero1", "zero2", "zero3"}) {
      const Config config = lbfgs_run(place, concat(stage, ranks), {concat("strategy=", stage, "-fp32"), "steps=3"});
      train_by(ranks, config);
      if (first.empty()) first = weights_of(config);
      EXPECT_TRUE(weights_of(config) == first) << stage << " on " << ranks;
    }
  }
}

TEST(LbfgsRun, ContinuesAsIfItHadNeverStopped) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder place;
    const Config whole = lbfgs_run(place, "whole");
    train_by(ranks, whole);
    train_by(ranks, lbfgs_run(place, "parts"), 3);
    const Config rest = lbfgs_run(place, "parts", {"resume=auto"});
    train_by(ranks, rest);
    EXPECT_TRUE(weights_of(rest) == weights_of(whole)) << ranks;
  }
}

TEST(LbfgsRun, ContinuesOnAnotherNumberOfRanksInAnotherStage) {
  const TemporaryFolder place;
  train_by(4, lbfgs_run(place, "run", {"strategy=zero3-fp32", "steps=4"}));
  for (const int ranks : {1, 2, 3}) {
    std::filesystem::copy(place / "run", place / concat("on", ranks), std::filesystem::copy_options::recursive);
    const auto recorders = train_by(
        ranks,
        lbfgs_run(place, concat("on", ranks), {"strategy=zero" + std::to_string(ranks) + "-fp32", "resume=auto"}));
    EXPECT_EQ(recorders[0]->losses.size(), 4u);
    EXPECT_LT(recorders[0]->losses.back(), 3.2);
  }
}

// A step so short that it changes nothing ends after its second evaluation, if that is of the same function.
TEST(LbfgsRun, EveryEvaluationOfAStepDropsTheSameActivations) {
  const TemporaryFolder place;
  const Config config = lbfgs_run(
      place, "run", {"optimizer={type: LBFGS, lr: 1e-30, max_iterations: 6}", "model.dropout=0.5", "steps=3"});
  Recorder recorder;
  train(config, recorder);
  EXPECT_EQ(metric(config, "evaluations"), (std::vector<double>{2, 2, 2}));
}

TEST(LbfgsRun, ALossThatIsNotFiniteEndsTheRunWithACheckpointToGoOnFrom) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder place;
    const std::vector<std::string> plain = {"optimizer={type: LBFGS, lr: 0.01, max_iterations: 4}", "steps=6"};
    std::vector<std::string> wild = plain;
    wild.emplace_back("scheduler={type: StepLR, step_size: 3, gamma: 1e30}");
    const std::string message = error_of([&] { train_by(ranks, lbfgs_run(place, "run", wild)); });
    EXPECT_TRUE(message.starts_with("step 4: the loss")) << message;
    EXPECT_NE(message.find("first bad tensor: "), std::string::npos) << message;
    EXPECT_EQ(RunFolder(place / "run").checkpoint_steps(), (std::vector<std::int64_t>{3}));
    std::vector<std::string> rest = plain;
    rest.emplace_back("resume=auto");
    const auto recorders = train_by(ranks, lbfgs_run(place, "run", rest));
    EXPECT_EQ(recorders[0]->losses.size(), 3u);
  }
}

}  // namespace
}  // namespace keel
