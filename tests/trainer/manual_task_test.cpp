// A task that steers its own step: two models that play against each other, through `train`, in every stage and at any
// number of ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/centring_layer.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Points of a ring, and noise.
DatasetPtr ring_points() {
  return made_dataset(70, "ring", [](std::int64_t i) {
    const std::vector<float> drawn = drawn_numbers("ring", 5, i, 4);
    return Example()
        .set("point", Numbers{{2}, {std::cos(6.2831853F * drawn[0]), std::sin(6.2831853F * drawn[0])}})
        .set("noise", Numbers{{3}, {drawn[1], drawn[2], drawn[3]}});
  });
}

// With a buffer, which also observes while the other model is trained, and with dropout.
struct Player : Module {
  Centring middle;
  Dropout dropout{0.2};
  Mlp net;
  Player(std::int64_t inputs, std::int64_t outputs)
      : middle(inputs), net({inputs, 10, outputs}, ActivationKind::tanh) {}
  Variable operator()(const Variable& x, Forward& pass) const {
    const std::int64_t rows = x.value().dim(0), inputs = x.value().dim(1);
    return net(view(dropout(view(middle(x, pass), {rows, 1, inputs}), pass), {rows, inputs}), pass);
  }
  void visit(Visitor& v) override {
    v("middle", middle);
    v("net", net);
  }
};

class RingGan : public ManualTask {
 public:
  explicit RingGan(const TaskSite& site) : site_(site), way_(site.settings.text("task.way")) {
    static std::atomic<int> made = 0;
    is_odd_ = made++ % 2 == 1;
  }
  std::vector<StackModel> stacks() override {
    return {{.name = "critic", .module = &critic_, .passes = 2}, {.name = "generator", .module = &generator_}};
  }
  Data data() override { return make_data(site_, ring_points(), 0.2, stack()); }

  void training_step(ManualStep& step) override {
    const auto critic = [this](const Batch& batch, Forward& pass) { return of_critic(batch, pass); };
    const auto generator = [this](const Batch& batch, Forward& pass) { return of_generator(batch, pass); };
    if (step.number() == 3) {
      if (way_ == "nothing") return;
      if (way_ == "forgets") return step.accumulate("critic", critic);
      if (way_ == "nobody") return step.train("teacher", critic);
      if (way_ == "early") return step.update("critic");
      if (way_ == "no_last") {
        step.accumulate("critic", critic, false);
        return step.update("critic");
      }
      if (way_ == "twice") {
        step.accumulate("generator", generator);
        return step.accumulate("generator", generator);
      }
      if (way_ == "too_many") return step.accumulate("generator", generator, false);
      if (way_ == "no_outcome") step.outcome("critic");
      if (way_ == "otherwise")
        return step.train(is_odd_ ? "critic" : "generator", is_odd_ ? LossFunction(critic) : generator);
      if (way_ == "throws") KEEL_CHECK(!is_odd_, "this rank has had enough");
      if (way_ == "infinite")
        return step.train("generator", [this](const Batch& batch, Forward& pass) -> Loss {
          return Loss(scale(of_generator(batch, pass).terms().front().value, std::numeric_limits<double>::infinity()));
        });
    }
    step.accumulate("critic", critic, false);
    step.accumulate("critic", critic);
    step.update("critic");
    if (step.number() % 2 == 0) return;  // the generator comes every other step
    step.train("generator", generator);
    step.accumulate("generator", generator);
    step.zero_grad("generator");
    EXPECT_GT(step.outcome("critic").grad_norm, 0);
  }
  void make_metrics(std::string_view, Metrics& metrics) override { metrics.make<MeanMetric>("radius"); }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const Variable fake = generator_(input(batch, "noise", pass), pass);
    metrics.at<MeanMetric>("radius").update(mean(sqrt(sum(square(fake), {1}))).value().item(), batch.weight("rows"));
  }

 private:
  Loss of_critic(const Batch& batch, Forward& pass) const {
    const Variable fake = generator_(input(batch, "noise", pass), pass);
    EXPECT_FALSE(fake.requires_grad()) << "it is a constant while the critic is trained";
    Loss loss;
    loss.add("real", mean(square(shift(critic_(input(batch, "point", pass), pass), -1))), "rows");
    loss.add("fake", mean(square(critic_(fake, pass))), "rows", 0.5);
    return loss;
  }
  Loss of_generator(const Batch& batch, Forward& pass) const {
    return mean(square(shift(critic_(generator_(input(batch, "noise", pass), pass), pass), -1)));
  }

  TaskSite site_;
  std::string way_;
  bool is_odd_ = false;
  Player critic_{2, 1}, generator_{3, 2};
};

const std::shared_ptr<const ConfigKeys>& gan_keys() {
  static const auto keys = keys_of_task<RingGan>(
      "ring",
      {{.key = "task.way",
        .type = KeyType::choice,
        .standard = "plays",
        .help = "How.",
        .choices = "plays|nothing|forgets|nobody|early|no_last|twice|too_many|no_outcome|otherwise|"
                   "throws|infinite"}},
      {"critic", "generator"});
  return keys;
}

Config gan_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  return task_run(gan_keys(), R"(
steps: 8
batch: {global: 12, micro: 2}
optimizer: {lr: 1e-2}
stacks: {critic: [optimizer.lr=2e-2, clip=0.5]}
eval: {every: 4}
checkpoint: {every: 5}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

std::string both(const Config& config) {
  const RunFolder folder(config.run);
  return read_text_file(folder.model("critic")) + read_text_file(folder.model("generator"));
}

TEST(ManualTask, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  for (const int n : {1, 2, 3, 4}) {
    const TemporaryFolder place;
    // It resumes after step 6, in which the generator's buffer has observed and nothing has updated it.
    expect_one_training_in_all_stages(
        n, [&](const std::string& run, std::vector<std::string> more) { return gan_run(place, run, std::move(more)); },
        n == 1 ? 6 : 5, both);
  }
}

TEST(ManualTask, GoesOnWithAnotherNumberOfRanks) {
  const TemporaryFolder place;
  const Config config = gan_run(place, "run");
  train_by(3, config, 5);
  const auto told = train_by(2, gan_run(place, "run", {"strategy=zero3-fp32", "resume=auto"}));
  EXPECT_EQ(told[0]->losses.size(), 2U) << "after step 6";
  const Manifest manifest = read_manifest(RunFolder(config.run).checkpoint(8));
  EXPECT_EQ(manifest.sections("stack."),
            (std::vector<std::string>{"stack.critic.weights", "stack.critic.optimizer", "stack.generator.weights",
                                      "stack.generator.optimizer"}));
  EXPECT_EQ(manifest.state.at("stacks").at("critic").at("taken").integer(), 8);
  EXPECT_EQ(manifest.state.at("stacks").at("generator").at("taken").integer(), 4);
}

TEST(ManualTask, RecordsWhatEachModelDoes) {
  const TemporaryFolder place;
  const Config config = gan_run(place, "run");
  train_by(2, config);
  int steps = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics())) {
    if (!record.contains("lr")) continue;
    ++steps;
    EXPECT_DOUBLE_EQ(record.at("train/critic/loss").number(),
                     record.at("train/critic/real").number() + 0.5 * record.at("train/critic/fake").number());
    EXPECT_EQ(record.contains("train/generator/loss"), steps % 2 == 1);
    if (steps % 2 == 1) {
      EXPECT_EQ(record.at("train/critic/lr").number(), 2 * record.at("train/generator/lr").number());
    }
    if (steps == 1) { EXPECT_EQ(record.at("train/critic/lr").number(), 2e-2); }
  }
  EXPECT_EQ(steps, 8);
}

// By a checkpoint, and by the files that the run's folder has of its newest one, as `keel generate` reads them.
TEST(ManualTask, ModelsOfARunAreEvaluatedByAnyRanksAndNamed) {
  const TemporaryFolder place;
  const Config config = gan_run(place, "run");
  train_by(2, config);
  double told = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (const Json* const radius = record.find("radius")) told = radius->number();
  EXPECT_GT(told, 0);
  for (const bool is_exported : {false, true})
    for (const int n : {1, 3})
      run_ranks(n, [&](Communicator& ranks) {
        TrainedModel trained(
            {.path = config.run, .strategy = "zero3-fp32", .is_exported = is_exported, .keys = gan_keys()}, ranks,
            [](LogLevel, std::string_view) {});
        const std::vector<NamedNumber> values = evaluate_run(trained).sets.front().values;
        EXPECT_EQ(std::ranges::find(values, "radius", &NamedNumber::name)->value, told);
      });

  const Checkpoint checkpoint = open_checkpoint(RunFolder(config.run).checkpoint(8));
  EXPECT_EQ(section_of_weights(checkpoint, "", "critic"), "stack.critic.weights");
  EXPECT_NE(error_of([&] {
              section_of_weights(checkpoint, "", "");
            }).find("has the models critic, generator; name one of them (--stack NAME)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { section_of_weights(checkpoint, "ema", "critic"); }).find("has several models"),
            std::string::npos);
}

// What ranks are told of a run that fails.
std::string refusal_by(int n, const Config& config, const Callbacks& callbacks = {}) {
  return error_of([&] {
    run_ranks(n, [&](Communicator& ranks) {
      TrainObserver silent;
      train(config, silent, ranks, callbacks);
    });
  });
}

TEST(ManualTask, IsRefusedWhatTasksWithOneModelMayAskFor) {
  const TemporaryFolder place;
  for (const auto& [change, why] :
       {std::pair("optimizer={type: LBFGS}",
                  "LBFGS: it evaluates the loss several times in a step, and the task ring "
                  "steers its own steps"),
        {"cuda_graph=true", "cuda_graph: a task that steers its own steps cannot be recorded"},
        {"ema.decay=0.9", "ema.decay: averages of weights are for tasks with one model"},
        {"stacks.critic=[batch.micro=1]", "stacks.critic: 'batch.micro=1' is not of optimizer"},
        {"stacks.critic=[optimizer.lr=x]", "optimizer.lr"}}) {
    const std::vector<std::string> changes = {"stacks.critic=[]", change};
    const std::string told = error_of([&] {
      TrainObserver silent;
      train(gan_run(place, "run", changes), silent);
    });
    EXPECT_NE(told.find(why), std::string::npos) << told;
  }
  EXPECT_FALSE(std::filesystem::exists(RunFolder(place / "run").metrics()));
}

TEST(ManualTask, IsToldWhatItDoesWrongAndWhatWasLearntIsKept) {
  for (const int n : {1, 3})
    for (const auto& [way, why] :
         {std::pair("nothing",
                    "step 3: nothing was trained: the task's training_step() has called neither train() nor"),
          {"forgets", "step 3: the step ends, and 'critic' has gradients that no update() has taken"},
          {"nobody", "step 3: the task trains no model 'teacher'; those that are trained are critic, generator"},
          {"early", "step 3: update('critic') without an accumulate('critic') before it"},
          {"no_last", "step 3: update('critic') without an accumulate('critic') before it that is the last one"},
          {"twice", "step 3: accumulate('generator') after the last one before an update; call update('generator')"},
          {"too_many", "StackModel::passes says that there are 1 at most; so this is the last, and needs last = true"},
          {"no_outcome", "step 3: outcome('critic') without an update('critic') in this step"},
          {"infinite", "step 3: the loss of 'generator' is inf"}}) {
      const TemporaryFolder place;
      const Config config = gan_run(place, "run", {"strategy=zero3-fp32", concat("task.way=", way)});
      const std::string told = refusal_by(n, config);
      if (n == 1 || std::string_view(way) != "infinite") EXPECT_NE(told.find(why), std::string::npos) << told;
      else EXPECT_NE(told.find("step 3: the loss of 'generator' on rank 0 is inf"), std::string::npos) << told;
      EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(2)).step, 2) << way;
    }
}

TEST(ManualTask, RanksThatTrainInDifferentWaysAreToldTheFirstCallThatDiffers) {
  const TemporaryFolder place;
  for (const char* stage : {"ddp-fp32", "zero3-fp32"}) {
    const std::string told = refusal_by(2, gan_run(place, stage, {concat("strategy=", stage), "task.way=otherwise"}));
    EXPECT_NE(told.find("step 3: ranks train in different ways"), std::string::npos) << told;
    EXPECT_NE(told.find("accumulate critic"), std::string::npos) << told;
    EXPECT_NE(told.find("accumulate generator"), std::string::npos) << told;
  }
}

TEST(ManualTask, ARankWhoseStepThrowsEndsTheOthersInWords) {
  const TemporaryFolder place;
  const std::string told = refusal_by(2, gan_run(place, "run", {"strategy=zero2-fp32", "task.way=throws"}));
  EXPECT_NE(told.find("this rank has had enough"), std::string::npos) << told;
}

class Thrower : public Callback {
 public:
  std::string_view name() const override { return "thrower"; }
  void after_backward(LoopView& view) override { KEEL_CHECK(view.state().step < 3 || view.is_first(), "out of milk"); }
};

// The rank's callback is silenced, so that the collectives of all passes and updates stay matched.
TEST(ManualTask, ACallbackThatThrowsOnOneRankEndsAllAfterSaving) {
  const TemporaryFolder place;
  const Config config = gan_run(place, "run", {"strategy=zero3-fp32"});
  const std::string told = refusal_by(3, config, {std::make_shared<Thrower>()});
  EXPECT_NE(told.find("callback thrower failed in after_backward: out of milk"), std::string::npos) << told;
  EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(4)).step, 4) << "told with the step after";
}

}  // namespace
}  // namespace keel
