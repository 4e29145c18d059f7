#include "keel/trainer/loss_curves.h"

#include <gtest/gtest.h>

#include "keel/runtime/stopwatch.h"
#include "keel/trainer/compare.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<LossCurve> curves_by(int n, const std::vector<CurveWish>& wishes, std::int64_t steps,
                                 const Network& network = {}) {
  std::vector<LossCurve> curves;
  run_ranks(n, [&](Communicator& ranks) {
    Recorder recorder;
    const auto mine = train_curves(wishes, steps, network, recorder, ranks);
    if (ranks.rank() == 0) curves = mine;
  });
  return curves;
}

std::vector<CurveWish> wishes_of(const Config& config, const CompareAxes& axes) {
  std::vector<CurveWish> wishes;
  for (const Variant& variant : variants_of(config, axes))
    wishes.push_back({variant.name, variant.config.seed, variant.config});
  return wishes;
}

std::vector<double> losses_of(const LossCurve& curve) {
  std::vector<double> losses;
  for (const LossPoint& point : curve.points) losses.push_back(point.loss);
  return losses;
}

TEST(LossCurves, AreTheLossesOfTrainWithThatSeedToTheBit) {
  const TemporaryFolder place;
  std::vector<CurveWish> wishes;
  for (const char* seed : {"seed=1", "seed=7"})
    for (CurveWish& wish : wishes_of(small_run(place, "run", {seed, "strategy=zero2-bf16"}),
                                     {.changes = {"diloco: outer={type: diloco, every: 4} sharding.group=1",
                                                  "int8: gradient_compression.type=int8"}}))
      wishes.push_back(std::move(wish));
  const std::vector<LossCurve> curves = curves_by(2, wishes, 12);
  EXPECT_FALSE(std::filesystem::exists(place / "run")) << "curves need no run folder";
  ASSERT_EQ(curves.size(), 6u);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    SCOPED_TRACE(concat(curves[i].variant, ", seed ", curves[i].seed));
    EXPECT_EQ(curves[i].seed, i < 3 ? 1u : 7u);
    Config config = wishes[i].config;
    config.run = place / concat("trained-", i);
    const auto trained = train_by(2, config);
    EXPECT_EQ(losses_of(curves[i]), trained[0]->losses);
    EXPECT_EQ(curves[i].points.back().validation_loss, trained[0]->validation);
    for (const LossPoint& point : curves[i].points) EXPECT_EQ(point.validation_loss.has_value(), point.step % 4 == 0);
    if (i % 3 != 0) { EXPECT_NE(losses_of(curves[i]), losses_of(curves[i / 3 * 3])) << "than plain"; }
  }
  EXPECT_NE(losses_of(curves[0]), losses_of(curves[3])) << "another seed";
}

// A comparison has no averages: their evaluations would be other ones than those of the run.
TEST(LossCurves, AreRefusedWhereEvaluationsAreOfAnAverageOfWeights) {
  const TemporaryFolder place;
  const auto refusal = [&](const std::string& average) {
    return error_of([&] { curves_by(1, wishes_of(small_run(place, "run", {average}), {}), 2); });
  };
  for (const char* average : {"ema.decay=0.9", "swa={start: 2, evaluate: true}"})
    EXPECT_NE(refusal(average).find("evaluations of this run are of an average"), std::string::npos) << average;
  EXPECT_EQ(refusal("ema={decay: 0.9, evaluate: false}"), "");
  EXPECT_EQ(refusal("swa={start: 2}"), "");
}

TEST(LossCurves, HaveTheBytesOfTheFormulasWithoutThoseOfEvaluations) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"eval.every=2"});
  const CompareAxes axes{.strategies = {"ddp-fp32", "zero1-fp32", "zero2-bf16", "zero3-fp32"},
                         .compressions = {"int8"}};
  const std::vector<LossCurve> curves = curves_by(3, wishes_of(config, axes), 4);
  std::vector<ComparedRun> runs;
  run_ranks(3, [&](Communicator& ranks) {
    Recorder recorder;
    const auto mine = compare(variants_of(config, axes), {.steps = 4, .repeats = 1}, recorder, ranks);
    if (ranks.rank() == 0) runs = mine;
  });
  ASSERT_EQ(curves.size(), runs.size());
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::vector<LossPoint>& points = curves[i].points;
    EXPECT_EQ(curves[i].variant, runs[i].name);
    EXPECT_EQ(points.back().loss, runs[i].loss) << runs[i].name;
    EXPECT_EQ(points.back().bytes - points.front().bytes, 3 * runs[i].sent_by_formula) << runs[i].name;
    for (std::size_t at = 1; at < points.size(); ++at) {
      EXPECT_GT(points[at].bytes, points[at - 1].bytes);
      EXPECT_GT(points[at].seconds, points[at - 1].seconds);
    }
  }
}

TEST(LossCurves, OfARankAloneSendNothingAndTakeNoLongerThanTheirTraining) {
  const TemporaryFolder place;
  const double begun = seconds_now();
  const std::vector<LossCurve> curves =
      curves_by(1, wishes_of(small_run(place, "run", {"model.layers=1", "eval.every=2"}), {}), 3);
  const double taken = seconds_now() - begun;
  ASSERT_EQ(curves.size(), 1u);
  double before = 0;
  for (const LossPoint& point : curves[0].points) {
    EXPECT_EQ(point.bytes, 0);
    EXPECT_GT(point.seconds, before);
    before = point.seconds;
    EXPECT_EQ(point.validation_loss.has_value(), point.step >= 2) << "at every second one and at the last";
  }
  EXPECT_LT(before, taken);
}

TEST(LossCurves, GroupsThatTrainByThemselvesSendAtOuterSteps) {
  const TemporaryFolder place;
  const auto wishes = wishes_of(small_run(place, "run", {"strategy=ddp-fp32", "sharding.group=1"}),
                                {.changes = {"local: outer={type: local_sgd, every: 4}"}});
  const Network slow{.link = {.delay = std::chrono::microseconds(100)}};
  const std::vector<LossCurve> curves = curves_by(2, wishes, 12), again = curves_by(2, wishes, 12, slow);
  ASSERT_EQ(curves.size(), 2u);
  const std::vector<LossPoint>& local = curves[1].points;
  EXPECT_LT(local.back().bytes, curves[0].points.back().bytes);
  const auto sent_in = [&](std::size_t step) { return local[step - 1].bytes - (step > 1 ? local[step - 2].bytes : 0); };
  for (std::size_t step = 1; step <= 12; ++step) {
    if (step % 4 == 0) EXPECT_EQ(sent_in(step), sent_in(4)) << step;
    else EXPECT_EQ(sent_in(step), sent_in(1)) << step;
  }
  EXPECT_GT(sent_in(4), 10 * sent_in(1)) << "weights beside notes of a few bytes";
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(losses_of(again[i]), losses_of(curves[i])) << "a slow network changes no number";
    EXPECT_EQ(again[i].points.back().bytes, curves[i].points.back().bytes);
  }
}

TEST(LossCurves, RefuseWhatTheyCannotTrain) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  EXPECT_THROW(curves_by(2, {{"plain", 1, config}}, 0), Error);
  EXPECT_TRUE(curves_by(2, {}, 4).empty());
  for (const char* bad : {"lr", "lr:", ": seed=1", "optimizer.lr=1", "a: optimizer.lrr=1", "a: optimizer.lr=fast",
                          "plain: optimizer.lr=1", "a=b: optimizer.lr=1", "a: outer={type: diloco"})
    EXPECT_THROW(variants_of(config, {.changes = {bad}}), Error) << bad;
  EXPECT_THROW(variants_of(config, {.changes = {"a: seed=1", "a: seed=2"}}), Error);
}

TEST(Variants, DifferInWhatTheirChangesSayAndInNothingElse) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  const auto variants = variants_of(config, {.strategies = {"ddp-fp32", "zero1-fp32"},
                                             .changes = {"fast:  optimizer.lr=0.5 clip=2",
                                                         "narrow: model={layers: 1, heads: 2, width: 8, block: 16}"}});
  ASSERT_EQ(variants.size(), 6u);
  EXPECT_EQ(variants[0].name, "ddp-fp32 plain");
  EXPECT_EQ(variants[4].name, "zero1-fp32 fast");
  EXPECT_EQ(variants[4].config, small_run(place, "run", {"strategy=zero1-fp32", "optimizer.lr=0.5", "clip=2"}));
  EXPECT_EQ(variants[5].config,
            small_run(place, "run", {"strategy=zero1-fp32", "model={layers: 1, heads: 2, width: 8, block: 16}"}));
  EXPECT_EQ(variants[3].config, small_run(place, "run", {"strategy=zero1-fp32"}));
}

}  // namespace
}  // namespace keel
