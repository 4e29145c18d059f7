// Times of steps on more ranks, from made-up measurements whose truth is known.

#include "keel/trainer/step_prediction.h"

#include <gtest/gtest.h>

#include "keel/dist/lab/cost_model.h"
#include "keel/trainer/make_task.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

Config made_up(const std::string& more = "") {
  return parse_config(
      concat("steps: 5\nmodel: {layers: 2, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
             "batch: {global: 64, micro: 64}\n",
             more),
      "made_up.yaml");
}

// Microseconds of a collective on one node.
double truth(const std::string& collective, int ranks, double bytes) {
  const lab::CostTerms terms = lab::cost_terms(collective, "ordered", ranks, 1).value();
  return 5 + 3 * terms.inside_steps + 1e-3 * terms.volume * bytes;
}

lab::Report report_of(const std::vector<std::string>& collectives, std::initializer_list<int> ranks) {
  lab::Report report;
  for (const std::string& collective : collectives)
    for (const int n : ranks)
      for (const std::int64_t bytes : {8, 4096, 1 << 20}) {
        lab::Record record{.collective = collective, .algorithm = "ordered", .dtype = "f32", .bytes = bytes};
        record.count = bytes / 4;
        record.ranks = n;
        record.in_place = lab::Timing{};
        record.in_place->p50_us = truth(collective, n, static_cast<double>(bytes));
        report.records.push_back(record);
      }
  return report;
}

const std::vector<std::string> kCollectives = {"all_reduce", "reduce_scatter", "all_gather"};

double true_communication(const Config& config, int ranks) {
  double us = truth("all_gather", ranks, 24.0 * ranks);
  for (const PlannedCollective& each : plan_run(config, *make_task(config), ranks).collectives)
    us += static_cast<double>(each.times) *
          truth(std::string(name_of(each.kind)), ranks, static_cast<double>(each.count * each.width));
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

}  // namespace
}  // namespace keel
