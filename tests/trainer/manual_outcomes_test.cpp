// What a step that its task steers comes to: which losses it names, whether it was taken, and the schedules of its
// models.

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <limits>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/stack_config.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

class Scripted;
std::function<void(const Scripted& task, ManualStep& step)> script_of_steps;
thread_local int rank_of_script = 0;

// Two models; a step is what the test says.
class Scripted : public ManualTask {
 public:
  explicit Scripted(const TaskSite& site) : site_(site) {}
  std::vector<StackModel> stacks() override {
    return {{.name = "left", .module = &left_}, {.name = "right", .module = &right_, .passes = 3}};
  }
  Data data() override {
    const auto rows = made_dataset(24, "rows", [](std::int64_t i) {
      return Example().set("x", Numbers{{2}, {1, static_cast<float>(i) / 8}});
    });
    return make_data(site_, rows, 0, [each = stack()](auto taken, const CollateInfo& info, Batch& batch) {
      each(taken, info, batch);
      batch.set_weight("none", 0);
    });
  }
  void training_step(ManualStep& step) override { script_of_steps(*this, step); }

  LossFunction good(std::string_view name) const { return times(name, 1, 1); }
  // 0, without a gradient.
  LossFunction skipped(std::string_view name) const {
    return [&net = net(name)](const Batch& batch, Forward& pass) {
      const Variable nothing = mean(sqrt(square(scale(net(input(batch, "x", pass)), 0))));
      return both(nothing, nothing);
    };
  }
  // 'w': a mean that has weight is infinite; 'n': one that has none is.
  LossFunction bad(std::string_view name, char which) const {
    const double infinite = std::numeric_limits<double>::infinity();
    return times(name, which == 'w' ? infinite : 1, which == 'n' ? infinite : 1);
  }
  // Terms A to C, which have weight, and a to c. The term that a micro-batch's letter names is infinite.
  LossFunction marked(std::string_view name, const std::string& letters) const {
    return [&net = net(name), letters, micro = std::size_t{0}](const Batch& batch, Forward& pass) mutable {
      const Variable error = mean(square(net(input(batch, "x", pass))));
      const char bad = letters.at(micro++);
      Loss loss;
      for (const char each : std::string("ABCabc"))
        loss.add(std::string(1, each), scale(error, each == bad ? std::numeric_limits<double>::infinity() : 1),
                 each < 'a' ? "rows" : "none");
      return loss;
    };
  }

 private:
  static Loss both(const Variable& of_rows, const Variable& of_none) {
    Loss loss;
    loss.add("of_rows", of_rows, "rows").add("of_none", of_none, "none");
    return loss;
  }
  const Linear& net(std::string_view name) const { return name == "left" ? left_ : right_; }
  LossFunction times(std::string_view name, double rows, double none) const {
    return [&net = net(name), rows, none](const Batch& batch, Forward& pass) {
      const Variable error = mean(square(net(input(batch, "x", pass))));
      return both(scale(error, rows), scale(error, none));
    };
  }

  TaskSite site_;
  Linear left_{2, 1}, right_{2, 1};
};

Config scripted_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<Scripted>("scripted", {}, {"left", "right"});
  return task_run(keys, R"(
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
checkpoint: {every: 0}
threads: 1
)",
                  place, run, std::move(more));
}

std::string refusal_of_script(int n, const Config& config) {
  return error_of([&] {
    run_ranks(n, [&](Communicator& ranks) {
      rank_of_script = ranks.rank();
      TrainObserver silent;
      train(config, silent, ranks);
    });
  });
}

// What counts nothing says less of what went wrong.
TEST(ManualOutcomes, NameTheFirstRankWhoseLossThatHasWeightIsNotFinite) {
  const std::string with_weight = " is inf; a lower optimizer.lr or a clip may help",
                    without = " is inf in a micro-batch that has no none; a mean over nothing must be finite";
  int run = 0;
  const TemporaryFolder place;
  for (const auto& [ranks, term, where] : {std::tuple("w", "of_rows", ""),
                                           {"n", "of_none", ""},
                                           {"wn", "of_rows", " on rank 0"},
                                           {"nw", "of_rows", " on rank 1"},
                                           {"ww", "of_rows", " on rank 0"},
                                           {"nn", "of_none", " on rank 0"},
                                           {"-n", "of_none", " on rank 1"},
                                           {"nwn", "of_rows", " on rank 1"}}) {
    const std::string kinds = ranks;
    script_of_steps = [&](const Scripted& task, ManualStep& step) {
      step.train("left", task.bad("left", kinds[static_cast<std::size_t>(rank_of_script)]));
    };
    const std::string told =
        refusal_of_script(static_cast<int>(kinds.size()), scripted_run(place, concat("run", ++run), {"steps=1"}));
    const bool weighs = std::string_view(term) == "of_rows";
    EXPECT_TRUE(told.starts_with(concat("step 1: term '", term, "' of 'left'", where, weighs ? with_weight : without)))
        << kinds << ": " << told;
  }
}

// Passes of the model on the right, of three micro-batches each, and of the one on the left ("L:..."), whose losses
// come to nothing. A letter is the term that is not finite: capital ones have weight.
TEST(ManualOutcomes, NameTheFirstMicroBatchSinceTheLastUpdateWhoseLossThatHasWeightIsNotFinite) {
  const TemporaryFolder place;
  int run = 0;
  using Calls = std::vector<std::string>;
  const auto told_by = [&](const Calls& calls) {
    script_of_steps = [&](const Scripted& task, ManualStep& step) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::string& call = calls[i];
        const std::string next = i + 1 < calls.size() ? calls[i + 1] : "update";
        if (call == "update") step.update("right");
        else if (call == "zero") step.zero_grad("right");
        else if (call[0] == 'L') step.accumulate("left", task.marked("left", call.substr(2)));
        else step.accumulate("right", task.marked("right", call), next == "update");
      }
      step.update("right");
      step.zero_grad("left");
    };
    const std::string told = refusal_of_script(1, scripted_run(place, concat("run", ++run), {"steps=1"}));
    for (const std::string model : {"", " of left"}) {
      const std::string begin = "step 1: term '", end = concat("' of '", model.empty() ? "right" : "left", "' is inf");
      if (!told.starts_with(begin) || told.find(end) != begin.size() + 1) continue;
      const bool weighs = told.find("; a lower optimizer.lr or a clip may help") == begin.size() + 1 + end.size();
      return concat(told[begin.size()], model, weighs ? ", weighs" : "");
    }
    return told;
  };
  for (const auto& [calls, told] :
       std::vector<std::pair<Calls, std::string>>{{{"---"}, ""},
                                                  {{"-A-"}, "A, weighs"},
                                                  {{"CAB"}, "C, weighs"},
                                                  {{"-a-"}, "a"},
                                                  {{"cab"}, "c"},
                                                  {{"-aB"}, "B, weighs"},
                                                  {{"-Ba"}, "B, weighs"},
                                                  {{"bcC"}, "C, weighs"},
                                                  {{"---", "--A"}, "A, weighs"},
                                                  {{"-A-", "B--"}, "A, weighs"},
                                                  {{"-a-", "b--"}, "a"},
                                                  {{"--a", "-B-", "C--"}, "B, weighs"},
                                                  {{"A--", "b--", "C--"}, "A, weighs"},
                                                  {{"A--", "zero", "---"}, "A, weighs"},
                                                  {{"---", "zero", "--b"}, "b"},
                                                  {{"---", "update", "-b-"}, "b"},
                                                  {{"L:-cA", "---"}, "A of left, weighs"},
                                                  {{"L:AAA", "-B-"}, "B, weighs"},
                                                  {{"-B-", "L:AAA", "---"}, "B, weighs"},
                                                  {{"---", "zero", "L:BBB", "---", "-c-"}, "c"}})
    EXPECT_EQ(told_by(calls), told) << ::testing::PrintToString(calls);
}

TEST(ManualOutcomes, OthersAreToldTheStepInWhichARankFails) {
  const TemporaryFolder place;
  std::latch both(2);
  script_of_steps = [&](const Scripted& task, ManualStep& step) {
    if (step.number() == 3) both.arrive_and_wait();
    KEEL_CHECK(step.number() < 3 || rank_of_script == 0, "out of milk");
    step.train("left", task.good("left"));
  };
  std::string told;
  EXPECT_EQ(error_of([&] {
              run_ranks(2, [&](Communicator& ranks) {
                rank_of_script = ranks.rank();
                TrainObserver silent;
                const std::string mine =
                    error_of([&] { train(scripted_run(place, "run", {"steps=4"}), silent, ranks); });
                if (ranks.rank() == 0) told = mine;
                throw Error(MessageLines{mine});
              });
            }),
            "out of milk");
  EXPECT_TRUE(told.starts_with("rank 1 failed: out of milk; rank 0 was ")) << told;
  EXPECT_TRUE(told.ends_with(", step 3)")) << told;
}

TEST(ManualOutcomes, AModelOfOnePassIsToldThatItsFirstAccumulateIsItsLast) {
  const TemporaryFolder place;
  script_of_steps = [](const Scripted& task, ManualStep& step) { step.accumulate("left", task.good("left"), false); };
  const std::string told = refusal_of_script(1, scripted_run(place, "run", {"steps=1"}));
  EXPECT_EQ(told,
            "step 1: 'left' has had 0 accumulate() since its last update, and StackModel::passes says that there are 1 "
            "at most; so this is the last, and needs last = true");
}

class TakenSteps : public Callback {
 public:
  std::string_view name() const override { return "taken_steps"; }
  void step_end(LoopView& view) override { seen += view.state().taken ? 't' : '-'; }
  std::string seen;
};

TEST(ManualOutcomes, AStepIsTakenUnlessAllOfItsUpdatesWereSkipped) {
  script_of_steps = [](const Scripted& task, ManualStep& step) {
    const std::int64_t number = step.number();
    if (number == 1) {  // without an update
      step.accumulate("left", task.good("left"));
      return step.zero_grad("left");
    }
    if (number == 2 || number == 5) step.train("left", task.good("left"));
    if (number == 3) step.train("left", task.skipped("left"));
    step.train("right", number == 5 ? task.good("right") : task.skipped("right"));
  };
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    std::vector<std::shared_ptr<TakenSteps>> taken;
    for (int rank = 0; rank < n; ++rank) taken.push_back(std::make_shared<TakenSteps>());
    run_ranks(n, [&](Communicator& ranks) {
      TrainObserver silent;
      train(scripted_run(place, "run", {"steps=5"}), silent, ranks, {taken[static_cast<std::size_t>(ranks.rank())]});
    });
    for (const auto& each : taken) EXPECT_EQ(each->seen, "tt--t") << n;
  }
}

TEST(StackConfig, HoldsAScheduleAgainstTheStepsThatTheDataHasSaid) {
  const TemporaryFolder place;
  Config config = scripted_run(place, "run", {"epochs=6", "stacks.right=[scheduler.warmup=100]"});
  const auto refusal = [&](double steps_of_epoch) {
    config.epoch_steps = steps_of_epoch;
    config.steps = static_cast<std::int64_t>(6 * steps_of_epoch);
    return error_of([&] { stack_config(config, "right"); });
  };
  EXPECT_EQ(refusal(0), "") << "before the data is known";
  EXPECT_EQ(refusal(17), "");
  for (const double steps : {0.5, 1.0, 4.0}) {
    const std::string told = refusal(steps);
    EXPECT_TRUE(told.starts_with("stacks.right: scheduler.warmup: ")) << told;
    EXPECT_TRUE(told.ends_with(concat(", with ", config.steps, " steps in 6 epochs"))) << told;
  }
}

}  // namespace
}  // namespace keel
