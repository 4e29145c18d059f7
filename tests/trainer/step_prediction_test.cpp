// Times of steps on more ranks, from made-up measurements whose truth is known.

#include "keel/trainer/step_prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/dist/lab/cost_model.h"
#include "keel/trainer/make_task.h"
#include "tests/error_of.h"

namespace keel {
namespace {

Config made_up(const std::string& more = "") {
  return parse_config(
      concat("steps: 5\nmodel: {layers: 2, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
             "batch: {global: 64, micro: 64}\n",
             more),
      "made_up.yaml");
}

// Microseconds of a collective.
double truth(const std::string& collective, int ranks, double bytes, int nodes = 1) {
  const lab::CostTerms terms = lab::cost_terms(collective, "ordered", ranks, nodes).value();
  return 5 + 3 * terms.inside_steps + 40 * terms.between_steps + 1e-3 * terms.volume * bytes;
}

// Times are `factor` times the truth.
lab::Report report_of(const std::vector<std::string>& collectives, std::initializer_list<int> ranks, int nodes = 1,
                      const char* dtype = "f32", double factor = 1) {
  lab::Report report;
  for (int node = 0; node < nodes; ++node) report.nodes.push_back(node);
  for (const std::string& collective : collectives)
    for (const int n : ranks)
      for (const std::int64_t bytes : {8, 4096, 1 << 20}) {
        lab::Record record{.collective = collective, .algorithm = "ordered", .dtype = dtype, .bytes = bytes};
        record.count = bytes / 4;
        record.ranks = n;
        record.in_place = lab::Timing{};
        record.in_place->p50_us = factor * truth(collective, n, static_cast<double>(bytes), nodes);
        report.records.push_back(record);
      }
  return report;
}

const std::vector<std::string> kCollectives = {"all_reduce", "reduce_scatter", "all_gather"};

// Collectives in numbers of two bytes take `narrow` times as long.
double true_communication(const Config& config, int ranks, int nodes = 1, double narrow = 1) {
  double us = truth("all_gather", ranks, 24.0 * ranks, nodes);
  for (const PlannedCollective& each : plan_run(config, *make_task(config), ranks).collectives)
    us += static_cast<double>(each.times) * (each.width == 2 ? narrow : 1) *
          truth(std::string(name_of(each.kind)), ranks, static_cast<double>(each.count * each.width), nodes);
  return 1e-3 * us;
}

MeasuredRun run_of(const Config& config, int ranks, double compute_ms, double share) {
  MeasuredRun run{.config = config, .ranks = ranks};
  const double exposed = ranks == 1 ? 0 : share * true_communication(config, ranks);
  run.times.assign(5, {compute_ms + exposed, exposed});
  return run;
}

StepPrediction predicted(const Config& config, const MeasuredRun& run, int ranks) {
  const std::vector<lab::Report> reports = {report_of(kCollectives, {2, 4})};
  return predict_step(config, run, reports, *make_task(config), ranks, 0);
}

// Acceptance check 14, for measurements that have no errors.
TEST(StepPrediction, IsTheFormulaThatMadeTheMeasurements) {
  for (const char* strategy : {"ddp-fp32", "zero1-fp32", "zero2-bf16", "zero3-fp32"}) {
    const Config config = made_up(concat("strategy: ", strategy, '\n'));
    const MeasuredRun run = run_of(config, 4, 80, 0.6);
    for (const int ranks : {2, 4, 16, 64}) {
      const StepPrediction prediction = predicted(config, run, ranks);
      EXPECT_NEAR(prediction.communication_ms, true_communication(config, ranks), 1e-6) << strategy;
      EXPECT_NEAR(prediction.compute_ms, 80.0 * 4 / ranks, 1e-9) << "64 sequences, shared out";
      EXPECT_NEAR(prediction.exposed_ms, 0.6 * true_communication(config, ranks), 1e-6);
      EXPECT_NEAR(prediction.step_ms, prediction.compute_ms + prediction.exposed_ms, 1e-12);
      EXPECT_NEAR(prediction.low_ms, prediction.step_ms, 1e-4) << "measurements without errors";
      EXPECT_NEAR(prediction.high_ms, prediction.step_ms, 1e-4);
      EXPECT_EQ(prediction.is_extrapolated, ranks > 32) << "8 times 4";
    }
    EXPECT_NEAR(predicted(config, run, 4).step_ms, run.times[0].step_ms, 1e-6) << "of its own ranks, what it measured";
    const StepPrediction alone = predicted(config, run, 1);
    EXPECT_EQ(alone.communication_ms, 0);
    EXPECT_NEAR(alone.step_ms, 320, 1e-9);
  }
}

TEST(StepPrediction, GrowsWithBytesAndItsIntervalWithWhatIsNotKnown) {
  const Config narrow = made_up("strategy: ddp-fp32\nsharding: {wire: bf16}\n"), wide = made_up("strategy: ddp-fp32\n");
  const MeasuredRun alone = run_of(wide, 1, 80, 0);
  double before = 0;
  for (const int ranks : {2, 4, 8, 32}) {
    EXPECT_LT(predicted(narrow, alone, ranks).communication_ms, predicted(wide, alone, ranks).communication_ms);
    const StepPrediction prediction = predicted(wide, alone, ranks);
    EXPECT_GT(prediction.communication_ms, before);
    before = prediction.communication_ms;
    EXPECT_NEAR(prediction.high_ms, prediction.step_ms, 1e-4) << "nothing hidden";
    EXPECT_NEAR(prediction.low_ms, std::max(prediction.compute_ms, prediction.communication_ms), 1e-4) << "all hidden";
  }
  const StepPrediction hidden = predicted(wide, run_of(wide, 4, 80, 0), 8);  // whose ranks never waited
  EXPECT_EQ(hidden.exposed_ms, 0);
  EXPECT_NEAR(hidden.low_ms, 40, 1e-9);
  EXPECT_NEAR(hidden.high_ms, 40, 1e-9);
  MeasuredRun shaky = run_of(wide, 4, 80, 0.5);
  const StepPrediction steady = predicted(wide, shaky, 8);
  for (std::size_t i = 0; i < shaky.times.size(); ++i) shaky.times[i].step_ms += i % 2 == 0 ? 4 : -4;
  const StepPrediction wider = predicted(wide, shaky, 8);
  EXPECT_LT(wider.low_ms, steady.low_ms);
  EXPECT_GT(wider.high_ms, steady.high_ms);
}

TEST(StepPrediction, RefusesWhatItKnowsNothingAbout) {
  const Config config = made_up("strategy: zero1-fp32\n");
  const MeasuredRun run = run_of(config, 2, 80, 0.5);
  const std::unique_ptr<TaskBase> task = make_task(config);
  const auto message = [&](const Config& wanted, const MeasuredRun& measured, const std::vector<lab::Report>& reports) {
    try {
      predict_step(wanted, measured, reports, *task, 8, 0);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  const std::vector<lab::Report> all = {report_of(kCollectives, {2, 4})};
  EXPECT_EQ(message(config, run, all), "");
  EXPECT_NE(message(config, run, {}).find("keel comm all_gather -N 4"), std::string::npos);
  EXPECT_NE(message(config, run, {report_of({"all_gather", "all_reduce"}, {2, 4})}).find("no reduce_scatter"),
            std::string::npos);
  EXPECT_NE(message(config, run, {report_of(kCollectives, {1})}).find("two ranks or more"), std::string::npos);
  EXPECT_NE(message(made_up("strategy: zero1-bf16\n"), run, all).find("another precision"), std::string::npos);
  EXPECT_NE(message(made_up("strategy: zero1-fp32\ngradient_compression: {type: int8}\n"), run, all)
                .find("no formula for all_to_all"),
            std::string::npos);
  EXPECT_NE(message(made_up("strategy: zero1-fp32\nsharding: {group: 2}\n"), run, all).find("sharding.group"),
            std::string::npos);
  MeasuredRun brief = run;
  brief.times.resize(2);
  EXPECT_NE(message(config, brief, all).find("too few"), std::string::npos);
  MeasuredRun old = run;  // whose steps are said to be shorter than their waiting
  for (StepTime& time : old.times) time.exposed_ms = time.step_ms + 3;
  EXPECT_NE(message(config, old, all).find("computes for -3 ms: they have no step_ms"), std::string::npos)
      << message(config, old, all);
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}
double two_deviations(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += std::pow(value - median_of(values), 2);
  return 2 * std::sqrt(squares / static_cast<double>(values.size() - 1)) / median_of(values);
}

TEST(StepPrediction, HasAnIntervalOfTwoDeviationsOfComputingAndOfWaiting) {
  const Config config = made_up("strategy: zero1-fp32\n");
  const std::vector<double> steady = {70, 84, 90, 80, 78, 81}, wild = {80, 80, 8, 300, 80},
                            short_waits = {0.2, 0.3, 0.25, 0.35, 0.28, 0.31}, wild_waits = {3, 1, 9, 3, 2};
  for (const auto& [computing, waits] : {std::pair(steady, short_waits), {wild, wild_waits}}) {
    const double middle = median_of(computing), spread = two_deviations(computing), wait_spread = two_deviations(waits);
    MeasuredRun run{.config = config, .ranks = 4};
    for (std::size_t i = 0; i < computing.size(); ++i) run.times.push_back({computing[i] + waits[i], waits[i]});
    for (const int ranks : {1, 2, 3, 16}) {
      const double rows = ranks == 3 ? 22 : 64 / ranks;  // of the rank that has most, of 64
      const double compute = middle * rows / 16, low = std::max(0.0, 1 - spread), high = 1 + spread;
      const double share = median_of(waits) / true_communication(config, 4);
      const double wait = ranks == 1 ? 0 : share * true_communication(config, ranks);
      const StepPrediction prediction = predicted(config, run, ranks);
      SCOPED_TRACE(ranks);
      EXPECT_EQ(prediction.ranks, ranks);
      EXPECT_NEAR(prediction.compute_ms, compute, 1e-9);
      EXPECT_NEAR(prediction.step_ms, compute + wait, 1e-6);
      EXPECT_NEAR(prediction.low_ms, compute * low + wait * std::max(0.0, 1 - wait_spread), 1e-4);
      EXPECT_NEAR(prediction.high_ms, compute * high + wait * (1 + wait_spread), 1e-4);
    }
    run.ranks = 1;  // of which nothing tells what waiting hides
    const double compute = middle * 16 / 64, all = true_communication(config, 4);
    const StepPrediction alone = predicted(config, run, 4);
    EXPECT_NEAR(alone.low_ms, std::max(compute * std::max(0.0, 1 - spread), all), 1e-4);
    EXPECT_NEAR(alone.high_ms, compute * (1 + spread) + all, 1e-4);
  }
}

TEST(StepPrediction, CountsTheRowsOfAllMicroBatchesOfARank) {
  const Config config = parse_config(
      "steps: 5\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\ndata: {type: addition, digits: 2}\n"
      "batch: {global: 64, micro: 2}\nstrategy: zero1-fp32\n",
      "made_up.yaml");
  const MeasuredRun run = run_of(config, 4, 80, 0.5);
  for (const int ranks : {1, 2, 8, 16}) EXPECT_NEAR(predicted(config, run, ranks).compute_ms, 320.0 / ranks, 1e-9);
}

TEST(StepPrediction, CountsTheNodesThatSoManyRanksFill) {
  const Config config = made_up("strategy: zero2-fp32\n");
  const std::vector<lab::Report> reports = {report_of(kCollectives, {2, 4}), report_of(kCollectives, {4, 8}, 2)};
  const std::unique_ptr<TaskBase> task = make_task(config);
  for (const auto& [ranks, each, nodes] :
       {std::tuple(8, 0, 1), {8, 4, 2}, {9, 4, 3}, {12, 4, 3}, {4, 1, 4}, {8, 8, 1}, {3, 2, 2}})
    EXPECT_NEAR(predict_communication(config, reports, *task, ranks, each).ms, true_communication(config, ranks, nodes),
                1e-6)
        << ranks << " ranks by " << each;
  EXPECT_EQ(predict_communication(config, {}, *task, 1, 4).ms, 0);
}

TEST(StepPrediction, TakesMeasurementsOfTheNumbersThatTravelAndOfSeveralRanksAlone) {
  const Config config = made_up("strategy: zero2-bf16\n");
  const std::unique_ptr<TaskBase> task = make_task(config);
  std::vector<lab::Report> reports = {report_of(kCollectives, {2, 4}), report_of(kCollectives, {2, 4}, 1, "bf16", 3),
                                      report_of(kCollectives, {2, 4}, 1, "f64", 7)};
  EXPECT_NEAR(predict_communication(config, reports, *task, 8, 0).ms, true_communication(config, 8, 1, 3), 1e-6);
  for (const lab::Record& record : report_of(kCollectives, {1}, 1, "f32", 1e3).records)
    reports[0].records.push_back(record);
  EXPECT_NEAR(predict_communication(config, reports, *task, 8, 0).ms, true_communication(config, 8, 1, 3), 1e-6);
}

TEST(StepPrediction, SaysInWhatARunDiffers) {
  const Config config = made_up("strategy: zero1-fp32\n");
  const MeasuredRun run = run_of(config, 2, 80, 0.5);
  const auto told = [&](const Config& wanted, const MeasuredRun& measured) {
    return testing::error_of([&] { predicted(wanted, measured, 8); });
  };
  const auto another = [&](const Config& wanted, const char* what) {
    return concat("the run in '", wanted.run, "' was trained with another ", what,
                  ", so its times say nothing about this one; train it anew, or name its folder with run=FOLDER");
  };
  const Config wide = made_up("strategy: zero1-fp32\nclip: 0.5\n");
  EXPECT_EQ(told(wide, run), "") << "which says nothing of the model";
  const Config deep = parse_config(
      "steps: 5\nmodel: {layers: 3, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
      "batch: {global: 64, micro: 64}\nstrategy: zero1-fp32\n",
      "made_up.yaml");
  EXPECT_EQ(told(deep, run), another(deep, "model"));
  const Config micro = parse_config(
      "steps: 5\nmodel: {layers: 2, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
      "batch: {global: 64, micro: 32}\nstrategy: zero1-fp32\n",
      "made_up.yaml");
  EXPECT_EQ(told(micro, run), another(micro, "batch.micro"));
  EXPECT_EQ(told(made_up("strategy: zero1-bf16\n"), run), another(config, "precision"));
  const Config closes = made_up("strategy: zero1-fp32\noptimizer: {type: LBFGS}\n");
  const std::string often = "optimizer.type: how often a step of LBFGS evaluates the loss is not predicted";
  EXPECT_EQ(told(closes, run), often);
  MeasuredRun other = run;
  other.config = closes;
  EXPECT_EQ(told(config, other), often);
  MeasuredRun brief = run;
  brief.times.resize(3);
  EXPECT_EQ(told(config, brief), "");
  brief.times.resize(2);
  EXPECT_EQ(told(config, brief), concat("the run in '", config.run,
                                        "' has 2 records of steps after the first, too few to tell how long one "
                                        "takes; a smaller log.every gives more"));
  MeasuredRun idle = run;
  for (StepTime& time : idle.times) time.step_ms = time.exposed_ms;
  EXPECT_NE(told(config, idle).find("a step computes for 0 ms: they have no step_ms"), std::string::npos)
      << told(config, idle);
}

}  // namespace
}  // namespace keel
