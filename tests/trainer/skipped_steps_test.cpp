// Runs in which steps are skipped because a gradient is not finite.

#include <cmath>
#include <set>

#include "keel/trainer/skipped_steps.h"
#include "tests/error_of.h"
#include "tests/trainer/line_task.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

const StepResult kBad = {.weight = 0.25, .loss_scale = 8, .first_bad = "head.weight"};
const StepResult kEmpty = {.weight = 0, .loss_scale = 8};
constexpr LossScaling kMoving = {.backoff = 0.5, .floor = 4}, kFixed = {.backoff = 1};

TEST(SkippedSteps, AreToldWithTheirReason) {
  EXPECT_EQ(SkippedSteps(kMoving, 0).message(kBad, 7),
            "step 7 was skipped: the gradient of head.weight is not finite; the loss scale is now 8");
  EXPECT_EQ(SkippedSteps(kFixed, 0, "critic").message(kBad, 7),
            "'critic': step 7 was skipped: the gradient of head.weight is not finite");
  EXPECT_EQ(SkippedSteps(kMoving, 0).message(kEmpty, 7),
            "step 7 was skipped: its batches have none of what the loss is a mean over");
}

TEST(SkippedSteps, TenInARowWhoseScaleCannotFallEndARun) {
  const StepResult taken = {.taken = true, .weight = 0.25};
  for (const LossScaling& scaling : {kMoving, kFixed}) {
    const StepResult bad = {.weight = 0.25, .loss_scale = 4, .first_bad = "head.weight"};  // at the floor
    SkippedSteps skipped(scaling, 0);
    for (int step = 1; step <= 9; ++step) skipped.count(bad, step);
    skipped.count(taken, 10);
    for (int step = 11; step <= 19; ++step) {
      skipped.count(bad, step);
      skipped.count(kEmpty, step);
    }
    EXPECT_EQ(error_of([&] { skipped.count(bad, 20); }),
              concat("10 steps in a row had gradients that were not finite, the last at step 20: the gradient of "
                     "head.weight is not finite",
                     scaling.backoff < 1 ? ", though the loss scale is at its floor" : "",
                     "; a lower optimizer.lr may help"));
  }
  SkippedSteps falling(kMoving, 0);
  for (int step = 1; step <= 30; ++step) falling.count(kBad, step);
}

TEST(SkippedSteps, OfWhichNoneWasTakenAreNoResult) {
  const auto told = [](const LossScaling& scaling, std::int64_t before, std::vector<StepResult> results) {
    SkippedSteps skipped(scaling, before);
    for (const StepResult& each : results) skipped.count(each, 1);
    return error_of([&] { skipped.check_some_step_was_taken(); });
  };
  const std::string begin = "every step of this run was skipped, and nothing learnt";
  EXPECT_EQ(told(kMoving, 0, {}), "");
  EXPECT_EQ(told(kMoving, 3, {kBad}), "");
  EXPECT_EQ(told(kMoving, 0, {{.taken = true, .weight = 1}, kBad}), "");
  EXPECT_EQ(told(kMoving, 0, {kBad}),
            begin +
                ": the gradient of head.weight is not finite at a loss scale of 8; more steps, or a smaller "
                "loss_scale.initial, may find one that fits");
  EXPECT_EQ(told(kFixed, 0, {kEmpty, kBad}),
            begin + ": the gradient of head.weight is not finite; a lower optimizer.lr may help");
  EXPECT_EQ(told(kFixed, 0, {kBad, kEmpty}),
            begin +
                "; of the last one, its batches have none of what the loss is a mean over; look at the weights "
                "that the loss names, and at the batches");
}

TEST(SkippedSteps, ARunThatTakesNoneIsAnErrorOnEveryRank) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    const Config config = small_run(place, concat("run", n),
                                    {"steps=5", "strategy=ddp-fp16", "loss_scale.initial=1e30", "scheduler.warmup=0"});
    std::string messages[2];
    run_ranks(n, [&](Communicator& ranks) {
      Recorder recorder;
      messages[ranks.rank()] = error_of([&] { train(config, recorder, ranks); });
    });
    for (int r = 0; r < n; ++r)
      EXPECT_NE(messages[r].find("every step of this run was skipped"), std::string::npos) << messages[r];
  }
}

// How a run of three groups ends on each rank, where gradients of these are too large to be finite.
std::vector<std::string> ends_of_groups(const std::set<int>& large, std::vector<std::string> more) {
  const TemporaryFolder place;
  more.insert(more.begin(), {"outer={type: local_sgd, every: 2}", "batch.global=3", "batch.micro=1"});
  const Config config = smallest_run(place, "run", std::move(more));
  std::vector<std::string> errors(3);
  run_ranks(3, [&](Communicator& ranks) {
    if (large.contains(ranks.rank())) LineTask::factor_of_loss = [](bool training) { return training ? 1e35 : 1; };
    Recorder told;
    errors[static_cast<std::size_t>(ranks.rank())] = error_of([&] { train(config, told, ranks); });
    LineTask::factor_of_loss = {};
  });
  return errors;
}

TEST(SkippedSteps, OfAGroupAreNoErrorWhereAnotherOneHasTakenSome) {
  const std::vector<std::string> settings = {"steps=2", "loss_scale={type: dynamic, initial: 1048576}"};
  for (const int large : {0, 2}) EXPECT_EQ(ends_of_groups({large}, settings), std::vector<std::string>(3)) << large;
  for (const std::string& error : ends_of_groups({0, 1, 2}, settings))
    EXPECT_NE(error.find("every step of this run was skipped"), std::string::npos) << error;
}

TEST(SkippedSteps, TenInARowOfAGroupEndTheRunOnAllRanks) {
  for (const char* steps : {"steps=10", "steps=14"})
    for (const int large : {0, 2})
      for (const std::string& error :
           ends_of_groups({large}, {steps, "loss_scale={type: fixed, initial: 1048576}", "optimizer.lr=1e-3"}))
        EXPECT_TRUE(error.starts_with(concat("rank ", large, ": 10 steps in a row had gradients that were not finite")))
            << steps << ' ' << error;
}

// A group that skipped its first two steps goes on with its own count of steps, which Adam divides by, and its scale.
TEST(SkippedSteps, OfAGroupAreItsOwnAfterAResume) {
  const TemporaryFolder place;
  const auto by_two = [&](const std::string& run, std::int64_t stop_after, std::vector<std::string> more) {
    more.insert(more.begin(), {"outer={type: local_sgd, every: 3}", "optimizer={type: AdamW, lr: 0.1}", "steps=8",
                               "loss_scale={type: dynamic, initial: 1048576, interval: 3}"});
    const bool begins = more.back() != "resume=auto";
    const Config config = smallest_run(place, run, std::move(more));
    run_ranks(2, [&](Communicator& ranks) {
      int passes = begins && ranks.rank() == 1 ? 2 : 0;
      LineTask::factor_of_loss = [&](bool training) { return training && passes-- > 0 ? 1e35 : 1; };
      Recorder told(stop_after);
      train(config, told, ranks);
      LineTask::factor_of_loss = {};
    });
    return weights_of(config);
  };
  const std::string whole = by_two("whole", INT64_MAX, {"batch.micro=2"});
  for (const std::int64_t stop : {2, 4, 5}) {
    const std::string run = concat("parts", stop);
    by_two(run, stop, {"batch.micro=2"});
    EXPECT_TRUE(by_two(run, INT64_MAX, {"strategy=zero3-fp32", "resume=auto"}) == whole) << stop;
  }
}

// The loss scale finds its place: codes of gradients that are not finite leave nothing behind.
TEST(SkippedSteps, AreFollowedByStepsThatAreTakenUnderEveryCompressionAndOptimizer) {
  const TemporaryFolder place;
  for (const std::string strategy : {"ddp-fp16", "zero1-fp16", "zero2-fp16"})
    for (const std::string compression : {"int8", "qgz", "topk", "powersgd"})
      for (const std::string optimizer : {"{type: AdamW8bit, lr: 3e-3}", "{type: AdamW, lr: 3e-3}"}) {
        SCOPED_TRACE(strategy + ' ' + compression + ' ' + optimizer);
        const Config config =
            small_run(place, "run",
                      {"model.width=36", "strategy=" + strategy, "gradient_compression.type=" + compression,
                       "loss_scale.initial=16384", "optimizer=" + optimizer, "checkpoint.every=0"});
        std::filesystem::remove_all(config.run);
        const auto told = train_by(2, config);
        int skipped = 0;
        const std::string& messages = told[0]->messages;
        for (std::size_t at = messages.find("was skipped"); at != std::string::npos;
             at = messages.find("was skipped", at + 1))
          ++skipped;
        EXPECT_TRUE(skipped > 0 && skipped <= 6) << messages;
        EXPECT_TRUE(std::isfinite(told[0]->losses.back()));
      }
}

}  // namespace
}  // namespace keel
