// A task that steers its own step: two models that play against each other, through `train`, in every stage and at any
// number of ranks.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Points of a ring, and noise.
class RingPoints : public Dataset {
 public:
  std::int64_t size() const override { return 70; }
  Example example(std::int64_t i) const override {
    std::vector<float> drawn(4);
    fill_uniform(drawn, 5, "ring", static_cast<std::uint64_t>(4 * i));
    Example example;
    example.set("point", Numbers{{2}, {std::cos(6.2831853F * drawn[0]), std::sin(6.2831853F * drawn[0])}});
    example.set("noise", Numbers{{3}, {drawn[1], drawn[2], drawn[3]}});
    return example;
  }
  std::string fingerprint() const override { return "ring"; }
};

class RingGan : public ManualTask {
 public:
  explicit RingGan(const TaskSite& site) : site_(site), way_(site.settings.text("task.way")) {}
  std::vector<StackModel> stacks() override {
    return {{.name = "critic", .module = &critic_, .passes = 2}, {.name = "generator", .module = &generator_}};
  }
  Data data() override { return make_data(site_, std::make_shared<RingPoints>(), 0.2, stack()); }

  void training_step(ManualStep& step) override {
    if (way_ == "nothing") return;
    if (way_ == "forgets") return step.accumulate("critic", [this](auto& b, auto& p) { return of_critic(b, p); });
    if (way_ == "nobody") return step.train("teacher", [this](auto& b, auto& p) { return of_critic(b, p); });
    if (way_ == "infinite")
      return step.train("generator", [this](const Batch& batch, Forward& pass) {
        return Loss(mul(of_generator(batch, pass).terms().front().value, std::numeric_limits<float>::infinity()));
      });
    const auto critic = [this](const Batch& batch, Forward& pass) { return of_critic(batch, pass); };
    const auto generator = [this](const Batch& batch, Forward& pass) { return of_generator(batch, pass); };
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
    const Variable fake = generator_(input(batch, "noise", pass));
    metrics.at<MeanMetric>("radius").update(mean(sqrt(sum(square(fake), {1}))).value().item(), batch.weight("rows"));
  }

 private:
  Loss of_critic(const Batch& batch, Forward& pass) const {
    const Variable fake = generator_(input(batch, "noise", pass));
    EXPECT_FALSE(fake.requires_grad()) << "it is a constant while the critic is trained";
    Loss loss;
    loss.add("real", mean(square(shift(critic_(input(batch, "point", pass)), -1))), "rows");
    loss.add("fake", mean(square(critic_(fake))), "rows", 0.5);
    return loss;
  }
  Loss of_generator(const Batch& batch, Forward& pass) const {
    return mean(square(shift(critic_(generator_(input(batch, "noise", pass))), -1)));
  }

  TaskSite site_;
  std::string way_;
  Mlp critic_{{2, 10, 1}, ActivationKind::tanh}, generator_{{3, 10, 2}, ActivationKind::tanh};
};

const std::shared_ptr<const ConfigKeys>& gan_keys() {
  static const std::shared_ptr<const ConfigKeys> made = [] {
    const TaskEntry gan = task_entry<RingGan>("ring", "points of a ring",
                                              {{.key = "task.way",
                                                .type = KeyType::choice,
                                                .standard = "plays",
                                                .help = "How.",
                                                .choices = "plays|nothing|forgets|nobody|infinite"}},
                                              {"critic", "generator"});
    return std::make_shared<const ConfigKeys>(std::span(&gan, 1));
  }();
  return made;
}

Config gan_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), concat("run=", place / run));
  return parse_config(gan_keys(), R"(
steps: 8
batch: {global: 12, micro: 2}
optimizer: {lr: 1e-2}
stacks: {critic: [optimizer.lr=2e-2, clip=0.5]}
eval: {every: 4}
checkpoint: {every: 5}
log: {every: 1}
threads: 1
)",
                      "gan.yaml", more);
}

std::string both(const Config& config) {
  const RunFolder folder(config.run);
  return read_text_file(folder.model("critic")) + read_text_file(folder.model("generator"));
}

TEST(ManualTask, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  constexpr const char* kStages[] = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"};
  for (const int n : {1, 2, 3, 4}) {
    const TemporaryFolder place;
    for (const char* stage : kStages) train_by(n, gan_run(place, stage, {concat("strategy=", stage)}));
    const std::string bits = both(gan_run(place, kStages[0]));
    for (const char* stage : kStages) EXPECT_TRUE(both(gan_run(place, stage)) == bits) << stage << ' ' << n;
    train_by(n, gan_run(place, "resumed", {"strategy=zero3-fp32"}), 5);
    train_by(n, gan_run(place, "resumed", {"strategy=zero1-fp32", "resume=auto"}));
    EXPECT_TRUE(both(gan_run(place, "resumed")) == bits) << n;
  }
}

TEST(ManualTask, GoesOnWithAnotherNumberOfRanks) {
  const TemporaryFolder place;
  const Config config = gan_run(place, "run");
  train_by(3, config, 5);
  const auto told = train_by(2, gan_run(place, "run", {"strategy=zero3-fp32", "resume=auto"}));
  EXPECT_EQ(told[0]->losses.size(), 3U);
  const Manifest manifest = read_manifest(RunFolder(config.run).checkpoint(8));
  EXPECT_EQ(manifest.sections("stack."), (std::vector<std::string>{"stack.critic.weights", "stack.critic.optimizer",
                                                                   "stack.generator.weights",
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
    EXPECT_EQ(record.at("train/critic/lr").number(), 2e-2);
    EXPECT_EQ(record.contains("train/generator/loss"), steps % 2 == 1);
    if (steps % 2 == 1) EXPECT_EQ(record.at("train/generator/lr").number(), 1e-2);
  }
  EXPECT_EQ(steps, 8);
}

TEST(ManualTask, IsToldWhatItDoesWrong) {
  const TemporaryFolder place;
  const auto refusal = [&](std::vector<std::string> more) {
    return error_of([&] {
      TrainObserver silent;
      train(gan_run(place, "run", more), silent);
    });
  };
  for (const auto& [change, why] :
       {std::pair("optimizer={type: LBFGS}", "LBFGS: it evaluates the loss several times in a step, and the task ring "
                                             "steers its own steps"),
        {"cuda_graph=true", "cuda_graph: a task that steers its own steps cannot be recorded"},
        {"ema.decay=0.9", "ema.decay: averages of weights are for tasks with one model"},
        {"stacks.critic=[batch.micro=1]", "stacks.critic: 'batch.micro=1' is not of optimizer"},
        {"stacks.critic=[optimizer.lr=x]", "optimizer.lr"}})
    EXPECT_NE(refusal({change}).find(why), std::string::npos) << refusal({change});
  EXPECT_FALSE(std::filesystem::exists(RunFolder(place / "run").metrics()));
  for (const auto& [way, why] :
       {std::pair("nothing", "step 1 has trained nothing"),
        {"forgets", "step 1 ends, and 'critic' has gradients that no update() has taken"},
        {"nobody", "the task trains no model 'teacher'; those that are trained are critic, generator"},
        {"infinite", "step 1: the loss of 'generator' is inf"}}) {
    const std::string told = refusal({concat("run=", place / way), concat("task.way=", way)});
    EXPECT_NE(told.find(why), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace keel
