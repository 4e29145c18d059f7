// What whole runs of the smallest model tell, keep and write, to the last word and number.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "keel/trainer/metrics.h"
#include "tests/trainer/line_run_support.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;
using Names = std::set<std::string>;

// Events but for those within a step, "event:step".
std::string events_of(int n, const Config& config, const AtEvents::OnEvent& then = {},
                      std::int64_t stop_after = INT64_MAX) {
  std::vector<std::string> seen(static_cast<std::size_t>(n));
  shown_run(n, config, [&](int rank, Told& told) {
    if (rank == n - 1) told.stop_after = stop_after;
    return at_events([&, rank](const std::string& event, LoopView& view) {
      if (event.find("backward") == std::string::npos && event.find("optimizer") == std::string::npos &&
          event != "step_begin" && event != "step_end")
        seen[static_cast<std::size_t>(rank)] += concat(event, ':', view.state().step, ' ');
      if (then) then(event, view);
    });
  });
  for (const std::string& each : seen) EXPECT_EQ(each, seen[0]);
  return seen[0];
}

class LineRuns : public LineRunsByRanks {};
INSTANTIATE_TEST_SUITE_P(ByRanks, LineRuns, ::testing::Values(1, 2));

TEST_P(LineRuns, HaveTheirEventsInOrder) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"eval.every=4", "checkpoint.every=3"});
    return smallest_run(place, "run", std::move(more));
  };
  EXPECT_EQ(events_of(n, run({"epochs=2"})),
            "fit_begin:0 epoch_begin:1 checkpoint_saved_3:3 epoch_end:3 epoch_begin:4 evaluation_begin:4 "
            "evaluation_end:4 evaluation_begin:6 evaluation_end:6 epoch_end:6 checkpoint_saved_6:6 fit_end:6 ");
  // Several ranks hear of a signal a step later.
  EXPECT_EQ(events_of(n, run({"epochs=4", "resume=auto"}), {}, n == 1 ? 8 : 7),
            "fit_begin:6 resumed:6 epoch_begin:7 interrupt:8 checkpoint_saved_8:8 fit_end:8 ");
  EXPECT_EQ(events_of(n, run({"epochs=3", "resume=auto"})),
            "fit_begin:8 resumed:8 evaluation_begin:8 evaluation_end:8 checkpoint_saved_8:8 evaluation_begin:9 "
            "evaluation_end:9 epoch_end:9 checkpoint_saved_9:9 fit_end:9 ")
      << "the evaluation that was due when it was asked to end comes first";
  EXPECT_EQ(events_of(n, run({"epochs=3", "resume=auto"})), "fit_begin:9 resumed:9 fit_end:9 ") << "nothing is left";
  EXPECT_EQ(events_of(n, smallest_run(place, "start", {"steps=2", "eval.at_start=true"})),
            "fit_begin:0 evaluation_begin:0 evaluation_end:0 epoch_begin:1 evaluation_begin:2 evaluation_end:2 "
            "checkpoint_saved_2:2 fit_end:2 ");
}

TEST_P(LineRuns, HaveTheEventsOfAStepInOrderWithItsNumbers) {
  std::string seen;
  shown_run(n, smallest_run(place, "run", {"steps=2", "batch={global: 12, micro: 3}"}), [&](int rank, Told&) {
    return at_events([&, rank](const std::string& event, LoopView& view) {
      const LoopState& state = view.state();
      if (rank == 0)
        seen += concat(event, ' ', state.step, ' ', state.micro_batch, ' ', state.known, ' ', state.units, '\n');
      EXPECT_EQ(state.steps, 2);
      EXPECT_EQ(view.rank(), rank);
      EXPECT_EQ(view.size(), n);
    });
  });
  std::string expected = "fit_begin 0 -1 0 0\n";
  for (int step = 1; step <= 2; ++step) {
    const std::string before = concat(step - 1, ' ', 12 * (step - 1), '\n');
    expected += concat("epoch_begin ", step, " -1 ", before, "step_begin ", step, " -1 ", before);
    for (int micro = 0; micro < 4 / n; ++micro)
      for (const char* event : {"before_backward ", "after_backward "})
        expected += concat(event, step, ' ', micro, ' ', before);
    for (const char* event : {"before_optimizer_step ", "after_optimizer_step "})
      expected += concat(event, step, " -1 ", before);
    expected += concat("step_end ", step, " -1 ", step, ' ', 12 * step, '\n');
    if (step == 1) expected += "epoch_end 1 -1 1 12\n";
  }
  for (const char* event : {"evaluation_begin", "evaluation_end", "epoch_end", "checkpoint_saved_2", "fit_end"})
    expected += concat(event, " 2 -1 2 24\n");
  EXPECT_EQ(seen, expected) << n;
}

TEST_P(LineRuns, WriteRecordsOfTheseNames) {
  const Names step = {"step",      "loss", "lr",          "grad_norm",      "rows_per_s", "step_ms",
                      "elapsed_s", "rows", "model_flops", "resident_bytes", "epoch"};
  for (const auto& [more, names] :
       std::vector<std::pair<std::string, Names>>{{"seed=1", {}},
                                                  {"log.peak_flops=0.5", {"flops_utilization"}},
                                                  {"loss_scale.initial=64", {"loss_scale"}},
                                                  {"optimizer={type: LBFGS, lr: 0.1}", {"evaluations"}}}) {
    const TemporaryFolder place;
    const Config config = smallest_run(place, "run",
                                       {"steps=5", "log.every=2", "eval.every=3",
                                        names.contains("loss_scale") ? "strategy=ddp-fp16" : "seed=1", more});
    shown_run(n, config);
    Names expected = step;
    expected.insert(names.begin(), names.end());
    if (n == 2) expected.insert({"exposed_ms", "sent_bytes"});
    std::string kinds;
    for (const Json& record : read_metrics(RunFolder(config.run).metrics())) {
      Names found;
      for (const auto& [name, value] : record.members()) found.insert(name);
      const bool is_step = found.contains("loss"), is_evaluation = found.contains("validation_loss");
      kinds += concat(record.at("step").integer(), is_step ? "s " : is_evaluation ? "e " : "m ");
      if (is_evaluation) { EXPECT_EQ(found, (Names{"step", "validation_loss"})); }
      if (!is_step) continue;
      EXPECT_EQ(found, expected) << more << n;
      EXPECT_EQ(record.at("rows").integer(), 4 * record.at("step").integer());
      EXPECT_EQ(record.at("epoch").number(), static_cast<double>(record.at("step").integer()) / 3);
      if (!record.contains("flops_utilization")) continue;
      const double flops = record.at("model_flops").number() * record.at("rows_per_s").number() / 4;
      EXPECT_NEAR(record.at("flops_utilization").number(), flops / (0.5 * n), 1e-9 * flops);
    }
    EXPECT_EQ(kinds, "2s 3e 4s 5s 5e 5m ");
  }
}

TEST_P(LineRuns, ReportEachStep) {
  for (const double limit : {0, 3600}) {
    const ShownRun run =
        shown_run(n, smallest_run(place, concat("run", limit), {concat("time_limit=", limit), "steps=5"}));
    ASSERT_EQ(run.steps.size(), 5U) << run.error;
    for (std::size_t i = 0; i < 5; ++i) {
      const StepReport& report = run.steps[i];
      EXPECT_EQ(report.step, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(report.steps, 5);
      EXPECT_EQ(report.unit, "rows");
      EXPECT_EQ(report.lr, 0.1);
      EXPECT_GT(report.grad_norm, 0);
      EXPECT_EQ(report.time_limit, limit);
      ASSERT_TRUE(report.seconds_left.has_value());
      const double mean = 4 / report.units_per_s;
      EXPECT_NEAR(*report.seconds_left, mean * static_cast<double>(4 - i), 1e-9);
    }
    EXPECT_EQ(run.result.step, 5);
    EXPECT_EQ(run.result.end, TrainEnd::finished);
    EXPECT_EQ(run.result.loss, run.steps.back().loss);
    EXPECT_EQ(run.result.evaluation.value().step, 5);
    EXPECT_TRUE(run.result.is_first);
    EXPECT_GT(run.result.peak_resident_bytes, 1 << 20);
  }
}

TEST_P(LineRuns, SayTheseWords) {
  const Config config = smallest_run(place, concat("run", n), {"eval.every=3", "checkpoint.every=4"});
  const RunFolder folder(config.run);
  const std::string alone =
      "strategy ddp-fp32: one process has nothing to share out, so it trains as fp32, with the same result\n";
  EXPECT_EQ(shown_run(n, config).words,
            concat(n == 1 ? alone : "", "evaluation of 3\ncheckpoint of 4 in ", folder.checkpoint(4),
                   "\nevaluation of 6\ncheckpoint of 6 in ", folder.checkpoint(6), "\n"));
}

TEST_P(LineRuns, MakeCheckpointsByStepsAndByTheClock) {
  for (const auto& [keys, steps] :
       std::vector<std::pair<std::vector<std::string>, Steps>>{{{"checkpoint.every=0"}, {6}},
                                                               {{"checkpoint.every=2"}, {2, 4, 6}},
                                                               {{"checkpoint.every=4"}, {4, 6}},
                                                               {{"checkpoint.minutes=1e-9"}, {1, 2, 3, 4, 5, 6}},
                                                               {{"checkpoint.minutes=1"}, {6}}}) {
    const TemporaryFolder place;
    std::vector<std::string> more = keys;
    more.emplace_back("checkpoint.keep=100");
    const Config config = smallest_run(place, "run", more);
    shown_run(n, config);
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), steps) << n << keys[0];
  }
}

TEST_P(LineRuns, MakeACheckpointWhereARankAsks) {
  for (const auto& [every, steps] : {std::pair<int, Steps>{0, {3, 6}}, {4, {3, 4, 6}}}) {
    const Config config =
        smallest_run(place, concat("run", every), {concat("checkpoint.every=", every), "checkpoint.keep=9"});
    shown_run(n, config, [&](int rank, Told& told) {
      if (rank == n - 1) told.save_after = n == 1 ? 3 : 2;  // several hear of it a step later
      return Callbacks();
    });
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), steps) << n;
  }
}

TEST(CheckpointConfigs, AskForOneByTimeWhereTheyNameMinutes) {
  CheckpointConfig config;
  EXPECT_FALSE(config.is_due_after(0));
  EXPECT_FALSE(config.is_due_after(1e9));
  config.minutes = 0.5;
  EXPECT_FALSE(config.is_due_after(std::nextafter(30.0, 0)));
  EXPECT_TRUE(config.is_due_after(30));
}

TEST_P(LineRuns, TrainByTheFactorOnRatesThatWasAskedForFromTheNextStepOn) {
  const Config config = smallest_run(place, "run");
  const auto factor = [](const std::string& seen, LoopView& view) {
    if (seen == "step_end" && view.state().step == 2) view.set_rate_factor(0.5);
    if (seen == "step_end" && view.state().step == 4) view.set_rate_factor(3);
  };
  const auto rates = [&](const Config& of, const AtEvents::OnEvent& then) {
    std::vector<double> all;
    for (const StepReport& each : shown_run(n, of, [&](int, Told&) { return at_events(then); }).steps)
      all.push_back(std::round(1000 * each.lr) / 1000);
    return all;
  };
  // With what ranks tell each other in the next step.
  EXPECT_EQ(rates(config, factor), (std::vector<double>{0.1, 0.1, 0.1, 0.05, 0.05, 0.3}));
  EXPECT_EQ(rates(smallest_run(place, "run", {"steps=8", "resume=auto"}), [](const std::string&, LoopView&) {}),
            (std::vector<double>{0.3, 0.3}));
}

}  // namespace
}  // namespace keel
