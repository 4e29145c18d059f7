// Runs whose weights are averages: evaluations and checkpoints have these, and training goes on where it was.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/trainer/evaluate_run.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

Config schedule_free_run(const TemporaryFolder& place, const std::string& name, std::vector<std::string> more) {
  more.insert(more.begin(), {"optimizer={type: ScheduleFreeAdamW, lr: 1e-2}", "scheduler={type: constant, warmup: 2}"});
  return small_run(place, name, more);
}

// Whether the model computes with what the engine calls its weights, in fp32 on a rank alone.
bool computes_with_weights(Sharded& engine) {
  std::vector<double> weights, values;
  for (const TensorPart& part : engine.weights())
    for (const double each : doubles(part.values)) weights.push_back(each);
  for (const auto& unit : engine.units())
    for (const Segment& segment : unit->layout().segments)
      for (const double each : doubles(segment.parameter->variable.value())) values.push_back(each);
  return weights == values;
}

class Watches : public Callback {
 public:
  std::string_view name() const override { return "watches"; }
  void step_end(LoopView& view) override { in_training_.push_back(computes_with_weights(view.engine())); }
  void evaluation_begin(LoopView& view) override { in_evaluation_.push_back(computes_with_weights(view.engine())); }

  std::vector<bool> in_training_, in_evaluation_;
};

// After the first step both are one.
TEST(ScheduleFreeRuns, AreEvaluatedByTheAverageAndTrainedAhead) {
  const TemporaryFolder place;
  const auto watches = std::make_shared<Watches>();
  Recorder recorder;
  run_ranks(1, [&](Communicator& ranks) {
    train(schedule_free_run(place, "run", {"eval.every=4"}), recorder, ranks, {watches});
  });
  ASSERT_EQ(watches->in_training_.size(), 12U);
  for (std::size_t step = 1; step < 12; ++step) EXPECT_FALSE(watches->in_training_[step]) << step;
  EXPECT_EQ(watches->in_evaluation_, (std::vector<bool>{true, true, true}));
}

TEST(ScheduleFreeRuns, TellTheLossThatOthersFindOfTheirCheckpoint) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const int n : {1, 2}) {
      const TemporaryFolder place;
      const Config config = schedule_free_run(place, "run", {"strategy=zero2-" + precision, "eval.every=12"});
      const auto recorders = train_by(n, config);
      run_ranks(1, [&](Communicator& alone) {
        TrainedModel trained({.path = config.run}, alone, [](LogLevel, std::string_view) {});
        const EvaluatedRun found = evaluate_run(trained);
        const auto loss = std::ranges::find(found.sets.front().values, "validation_loss", &NamedNumber::name);
        ASSERT_NE(loss, found.sets.front().values.end());
        EXPECT_EQ(loss->value, recorders[0]->validation) << precision << n;
      });
    }
}

TEST(ScheduleFreeRuns, LearnTheSameWhateverIsEvaluated) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const int n : {1, 2}) {
      const TemporaryFolder place;
      const auto weights = [&](const char* name, const std::string& more) {
        const Config config = schedule_free_run(place, name, {"strategy=zero3-" + precision, more});
        train_by(n, config);
        return weights_of(config);
      };
      const auto plain = weights("plain", "eval.every=100");
      EXPECT_TRUE(weights("often", "eval.every=2") == plain) << precision << n;
      EXPECT_TRUE(weights("averaged", "ema.decay=0.9") == plain) << precision << n;
    }
}

TEST(ScheduleFreeRuns, SaveTheAverageWhereTheEvaluationFailed) {
  class Fails : public Callback {
   public:
    std::string_view name() const override { return "fails"; }
    void evaluation_begin(LoopView& view) override {
      if (view.state().step == 4) throw AgreedError("the evaluation broke");
    }
  };
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config plain = schedule_free_run(place, "plain", {"eval.every=100", "checkpoint.every=4"});
    train_by(n, plain);
    const Config broken = schedule_free_run(place, "broken", {"eval.every=4", "checkpoint.every=100"});
    EXPECT_EQ(error_of([&] {
                run_ranks(n, [&](Communicator& ranks) {
                  Recorder recorder;
                  train(broken, recorder, ranks, {std::make_shared<Fails>()});
                });
              }),
              "the evaluation broke");
    train_by(n, schedule_free_run(place, "broken", {"eval.every=100", "resume=auto"}));
    EXPECT_TRUE(weights_of(broken) == weights_of(plain)) << n;
  }
}

}  // namespace
}  // namespace keel
