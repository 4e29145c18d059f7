// Steps that compared trainings skip: they are counted, and a training that took none is no result.

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "keel/trainer/compare.h"
#include "keel/trainer/curve_file.h"
#include "tests/error_of.h"
#include "tests/trainer/line_task.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Gradients of these ranks are too large to be finite in their first passes, so many.
struct LargeGradients {
  std::set<int> ranks;
  int passes;
};

struct SkippingPair {
  std::vector<ComparedRun> runs;
  std::vector<LossCurve> curves;
};

// What each rank is told of five steps of a micro-batch, in two stages and as a curve.
SkippingPair compare_skipping(int n, const LargeGradients& large, std::vector<std::string> settings) {
  const TemporaryFolder place;
  settings.insert(settings.begin(), {concat("batch.global=", n), "batch.micro=1"});
  const Config config = smallest_run(place, "run", settings);
  const std::vector<Variant> variants = variants_of(config, {.strategies = {"ddp-fp32", "zero2-fp32"}});
  SkippingPair told;
  run_ranks(n, [&](Communicator& ranks) {
    std::int64_t pass = 0;
    LineTask::factor_of_loss = [&](bool training) {
      const bool is_large = training && pass++ % 5 < large.passes && large.ranks.contains(ranks.rank());
      return is_large ? 1e35 : 1.0;
    };
    Recorder recorder;
    const std::vector<ComparedRun> runs = compare(variants, {.steps = 5, .repeats = 1}, recorder, ranks);
    const CurveWish wish{"plain", 0, config};
    const std::vector<LossCurve> curves = train_curves(std::span(&wish, 1), 5, {}, recorder, ranks);
    LineTask::factor_of_loss = {};
    if (ranks.rank() == n - 1) told = {runs, curves};
  });
  return told;
}

const std::vector<std::string> kHighScale = {"loss_scale={type: dynamic, initial: 1048576}"};

TEST(ComparedSkips, AreCountedAndATrainingThatTookNoStepIsToldWithWhatHelps) {
  for (const int n : {1, 2})
    for (const int passes : {0, 3, 5}) {
      const SkippingPair told = compare_skipping(n, {{0}, passes}, kHighScale);
      ASSERT_EQ(told.runs.size(), 2u);
      std::vector<SkippedOfTraining> all = {told.curves[0].skipped};
      for (const ComparedRun& run : told.runs) {
        all.push_back(run.skipped);
        EXPECT_EQ(run.has_learnt(), passes < 5);
        EXPECT_EQ(run.fingerprint, told.runs[0].fingerprint);
      }
      for (const SkippedOfTraining& skipped : all) {
        EXPECT_EQ(skipped.count, passes) << n;
        EXPECT_TRUE(skipped.by_all);
        EXPECT_EQ(skipped.none_taken.empty(), passes < 5) << skipped.none_taken;
        if (passes < 5) continue;
        for (const char* words : {"every step", "weight is not finite at a loss scale of 32768", "more steps",
                                  "a smaller loss_scale.initial"})
          EXPECT_NE(skipped.none_taken.find(words), std::string::npos) << skipped.none_taken;
      }
      EXPECT_EQ(parse_curve_file(to_json({.ranks = n, .curves = told.curves})).curves, told.curves);
    }
}

// A way in which one group has learnt is a result, and all ranks are told the same.
TEST(ComparedSkips, OfGroupsAreThoseOfTheOneThatSkippedTheMost) {
  std::vector<std::string> settings = kHighScale;
  settings.emplace_back("outer={type: local_sgd, every: 2}");
  for (const std::set<int>& large : {std::set{0}, {2}, {0, 1, 2}}) {
    const SkippingPair told = compare_skipping(3, {large, 5}, settings);
    for (const SkippedOfTraining& skipped : {told.runs[0].skipped, told.runs[1].skipped, told.curves[0].skipped}) {
      EXPECT_EQ(skipped.count, 5);
      EXPECT_EQ(skipped.by_all, large.size() == 3);
      EXPECT_EQ(skipped.none_taken.empty(), large.size() < 3) << skipped.none_taken;
    }
  }
}

}  // namespace
}  // namespace keel
