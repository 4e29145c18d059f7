// What whole runs of the smallest model tell, keep and write, to the last word and number.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "keel/trainer/callback.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/line_task.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;
using Names = std::set<std::string>;

// Keeps all that it is told, a line each.
class Told : public TrainObserver {
 public:
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_eval(const EvalReport& report) override { words += concat("evaluation of ", report.step, '\n'); }
  void on_checkpoint(const CheckpointReport& report) override {
    words += concat("checkpoint of ", report.step, " in ", report.path, '\n');
  }
  void on_message(LogLevel, std::string_view message) override { words += concat(message, '\n'); }
  bool stop_requested() override { return !steps.empty() && steps.back().step >= stop_after; }
  bool save_requested() override { return !steps.empty() && steps.back().step == save_after; }

  std::vector<StepReport> steps;
  std::string words;
  std::int64_t stop_after = INT64_MAX, save_after = -1;
};

struct Ended {
  TrainResult result;
  std::string error, words;  // words: of the first rank
  std::vector<StepReport> steps;
};

using Prepare = std::function<Callbacks(int rank, Told& told)>;

Ended ended(int n, const Config& config, const Prepare& prepare = {}) {
  Ended first;
  const std::string error = error_of([&] {
    run_ranks(n, [&](Communicator& ranks) {
      Told told;
      Callbacks callbacks = prepare ? prepare(ranks.rank(), told) : Callbacks();
      TrainResult result;
      const std::string mine = error_of([&] { result = train(config, told, ranks, callbacks); });
      if (ranks.rank() == 0) first = {result, mine, told.words, told.steps};
      if (!mine.empty()) throw Error(mine);
    });
  });
  EXPECT_EQ(error.empty(), first.error.empty()) << error;
  return first;
}

// Calls a function at the events of steps and evaluations.
class AtEvents : public Callback {
 public:
  using OnEvent = std::function<void(const std::string& event, LoopView& view)>;
  explicit AtEvents(OnEvent on_event) : on_event_(std::move(on_event)) {}
  std::string_view name() const override { return "at_events"; }
  void fit_begin(LoopView& v) override { on_event_("fit_begin", v); }
  void resumed(LoopView& v) override { on_event_("resumed", v); }
  void epoch_begin(LoopView& v) override { on_event_("epoch_begin", v); }
  void step_begin(LoopView& v) override { on_event_("step_begin", v); }
  void before_backward(LoopView& v) override { on_event_("before_backward", v); }
  void after_backward(LoopView& v) override { on_event_("after_backward", v); }
  void before_optimizer_step(LoopView& v) override { on_event_("before_optimizer_step", v); }
  void after_optimizer_step(LoopView& v) override { on_event_("after_optimizer_step", v); }
  void step_end(LoopView& v) override { on_event_("step_end", v); }
  void evaluation_begin(LoopView& v) override { on_event_("evaluation_begin", v); }
  void evaluation_end(LoopView& v, bool done) override { on_event_(done ? "evaluation_end" : "evaluation_failed", v); }
  void checkpoint_saved(LoopView& v, const std::string&, std::int64_t step) override {
    on_event_(concat("checkpoint_saved_", step), v);
  }
  void epoch_end(LoopView& v) override { on_event_("epoch_end", v); }
  void exception(LoopView& v, const std::exception& error) override { on_event_(concat("<", error.what(), ">"), v); }
  void interrupt(LoopView& v) override { on_event_("interrupt", v); }
  void fit_end(LoopView& v) override { on_event_("fit_end", v); }

 private:
  OnEvent on_event_;
};

Callbacks at_events(AtEvents::OnEvent on_event) { return {std::make_shared<AtEvents>(std::move(on_event))}; }

// Events but for those within a step, "event:step".
std::string events_of(int n, const Config& config, const AtEvents::OnEvent& then = {},
                      std::int64_t stop_after = INT64_MAX) {
  std::vector<std::string> seen(static_cast<std::size_t>(n));
  ended(n, config, [&](int rank, Told& told) {
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

class LineRuns : public ::testing::TestWithParam<int> {
 protected:
  const int n = GetParam();  // ranks
  const TemporaryFolder place;
};
INSTANTIATE_TEST_SUITE_P(ByRanks, LineRuns, ::testing::Values(1, 2));

TEST_P(LineRuns, HaveTheirEventsInOrder) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"eval.every=4", "checkpoint.every=3"});
    return line_run(place, "run", std::move(more));
  };
  EXPECT_EQ(events_of(n, run({"epochs=2"})),
            "fit_begin:0 epoch_begin:1 checkpoint_saved_3:3 epoch_end:3 epoch_begin:4 evaluation_begin:4 "
            "evaluation_end:4 evaluation_begin:6 evaluation_end:6 epoch_end:6 checkpoint_saved_6:6 fit_end:6 ");
  // Several ranks hear of a signal a step later.
  EXPECT_EQ(events_of(n, run({"epochs=4", "resume=auto"}), {}, n == 1 ? 8 : 7),
            "fit_begin:6 resumed:6 epoch_begin:7 interrupt:8 checkpoint_saved_8:8 fit_end:8 ");
  EXPECT_EQ(events_of(n, run({"epochs=3", "resume=auto"})),
            "fit_begin:8 resumed:8 evaluation_begin:9 evaluation_end:9 epoch_end:9 checkpoint_saved_9:9 fit_end:9 ");
  EXPECT_EQ(events_of(n, run({"epochs=3", "resume=auto"})), "fit_begin:9 resumed:9 fit_end:9 ") << "nothing is left";
  EXPECT_EQ(events_of(n, line_run(place, "start", {"steps=2", "eval.at_start=true"})),
            "fit_begin:0 evaluation_begin:0 evaluation_end:0 epoch_begin:1 evaluation_begin:2 evaluation_end:2 "
            "checkpoint_saved_2:2 fit_end:2 ");
}

TEST_P(LineRuns, HaveTheEventsOfAStepInOrderWithItsNumbers) {
  std::string seen;
  ended(n, line_run(place, "run", {"steps=2", "batch={global: 12, micro: 3}"}), [&](int rank, Told&) {
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
                                                  {"log.peak_flops=1e9", {"flops_utilization"}},
                                                  {"loss_scale.initial=64", {"loss_scale"}},
                                                  {"optimizer={type: LBFGS, lr: 0.1}", {"evaluations"}}}) {
    const TemporaryFolder place;
    const Config config = line_run(place, "run",
                                   {"steps=5", "log.every=2", "eval.every=3",
                                    names.contains("loss_scale") ? "strategy=ddp-fp16" : "seed=1", more});
    ended(n, config);
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
      EXPECT_NEAR(record.at("flops_utilization").number(), flops / (1e9 * n), 1e-9 * flops / 1e9);
    }
    EXPECT_EQ(kinds, "2s 3e 4s 5s 5e 5m ");
  }
}

TEST_P(LineRuns, ReportEachStep) {
  for (const double limit : {0, 3600}) {
    const Ended run = ended(n, line_run(place, concat("run", limit), {concat("time_limit=", limit), "steps=5"}));
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
  const Config config = line_run(place, concat("run", n), {"eval.every=3", "checkpoint.every=4"});
  const RunFolder folder(config.run);
  const std::string alone =
      "strategy ddp-fp32: one process has nothing to share out, so it trains as fp32, with the same result\n";
  EXPECT_EQ(ended(n, config).words,
            concat(n == 1 ? alone : "", "evaluation of 3\ncheckpoint of 4 in ", folder.checkpoint(4),
                   "\nevaluation of 6\ncheckpoint of 6 in ", folder.checkpoint(6), "\n"));
}

TEST_P(LineRuns, MakeCheckpointsByStepsByTheClockAndOnRequest) {
  for (const auto& [keys, steps] :
       std::vector<std::pair<std::vector<std::string>, Steps>>{{{"checkpoint.every=0"}, {6}},
                                                               {{"checkpoint.every=2"}, {2, 4, 6}},
                                                               {{"checkpoint.every=4"}, {4, 6}},
                                                               {{"checkpoint.minutes=1e-9"}, {1, 2, 3, 4, 5, 6}},
                                                               {{"checkpoint.minutes=1"}, {6}}}) {
    const TemporaryFolder place;
    std::vector<std::string> more = keys;
    more.emplace_back("checkpoint.keep=100");
    const Config config = line_run(place, "run", more);
    ended(n, config);
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), steps) << n << keys[0];
    if (steps.size() > 3 || keys[0] == "checkpoint.minutes=1") continue;
    const Config asked = line_run(place, "asked", more);
    ended(n, asked, [&](int rank, Told& told) {
      if (rank == n - 1) told.save_after = n == 1 ? 3 : 2;  // several hear of it a step later
      return Callbacks();
    });
    Steps with_three = steps;
    if (std::ranges::find(steps, 3) == steps.end()) with_three.push_back(3);
    std::ranges::sort(with_three);
    EXPECT_EQ(RunFolder(asked.run).checkpoint_steps(), with_three) << n << keys[0];
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

TEST_P(LineRuns, EndByACallbackWithItsReason) {
  const Config config = line_run(place, "run", {"eval.every=2"});
  for (const auto& [event, step, last] :
       {std::tuple("step_begin", 3, 3), {"step_end", 3, 4}, {"evaluation_end", 4, 4}, {"fit_begin", 0, 0}}) {
    std::filesystem::remove_all(config.run);
    const Ended run = ended(n, config, [&, at = std::string(event), when = step](int rank, Told&) {
      return at_events([&, rank](const std::string& seen, LoopView& view) {
        if (seen == at && view.state().step == when && rank == n - 1) view.ask_stop("enough");
        if (seen == at && view.state().step == when && rank == n - 1) view.ask_stop("more than that");
      });
    });
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.result.end, TrainEnd::callback);
    EXPECT_EQ(run.result.step, last) << event;
    EXPECT_NE(run.words.find(concat("ends after step ", last, ": enough\n")), std::string::npos) << run.words;
  }
}

TEST_P(LineRuns, EndByACallbackThatThrowsAndSaveWhatWasLearnt) {
  const Config config = line_run(place, "run");
  for (const auto& [event, saved] : {std::pair("step_begin", 4), {"step_end", 4}, {"evaluation_end", 6}}) {
    std::filesystem::remove_all(config.run);
    std::vector<std::string> seen(2);
    // Several ranks hear of it a step later.
    const int when = n == 2 && event == std::string("step_end") ? 3 : saved;
    const Ended run = ended(n, config, [&, at = std::string(event)](int rank, Told&) {
      return at_events([&, at, rank, when](const std::string& told, LoopView& view) {
        if (told.starts_with('<')) seen[static_cast<std::size_t>(rank)] = told;
        if (told == at && view.state().step == when && rank == n - 1) throw Error("out of milk", ErrorKind::io);
      });
    });
    const std::string failure =
        concat(n == 1 ? "" : "rank 1: ", "callback at_events failed in ", event, ": out of milk");
    EXPECT_EQ(run.error, failure);
    for (int rank = 0; rank < n; ++rank) EXPECT_EQ(seen[static_cast<std::size_t>(rank)], concat('<', failure, '>'));
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), Steps{saved}) << event << n;
  }
}

TEST_P(LineRuns, TrainByTheFactorOnRatesThatWasAskedForFromTheNextStepOn) {
  const Config config = line_run(place, "run");
  const auto factor = [](const std::string& seen, LoopView& view) {
    if (seen == "step_end" && view.state().step == 2) view.set_rate_factor(0.5);
    if (seen == "step_end" && view.state().step == 4) view.set_rate_factor(3);
  };
  const auto rates = [&](const Config& of, const AtEvents::OnEvent& then) {
    std::vector<double> all;
    for (const StepReport& each : ended(n, of, [&](int, Told&) { return at_events(then); }).steps)
      all.push_back(std::round(1000 * each.lr) / 1000);
    return all;
  };
  // With what ranks tell each other in the next step.
  EXPECT_EQ(rates(config, factor), (std::vector<double>{0.1, 0.1, 0.1, 0.05, 0.05, 0.3}));
  EXPECT_EQ(rates(line_run(place, "run", {"steps=8", "resume=auto"}), [](const std::string&, LoopView&) {}),
            (std::vector<double>{0.3, 0.3}));
}

TEST_P(LineRuns, ThatEvaluateTheirLossThemselvesSayWhereItIsNotFinite) {
  int run = 0;
  const auto failure = [&](int step, int evaluation, double factor) {
    const Config config = line_run(place, concat("run", ++run), {"optimizer={type: LBFGS, lr: 0.5}", "batch.micro=4"});
    return ended(n, config,
                 [&](int, Told&) {
                   auto at = std::make_shared<std::pair<std::int64_t, int>>();
                   LineTask::factor_of_loss = [=](bool training) {
                     return training && at->first == step && ++at->second == evaluation ? factor : 1;
                   };
                   return at_events([=](const std::string& seen, LoopView& view) {
                     if (seen == "step_begin") *at = {view.state().step, 0};
                   });
                 })
        .error;
  };
  const std::string told = concat("the loss", n == 1 ? "" : " on rank 0", " is inf; first bad tensor: ");
  for (const auto& [step, evaluation] : {std::pair(1, 1), {1, 2}, {2, 2}}) {
    const std::string error = failure(step, evaluation, INFINITY);
    EXPECT_TRUE(error.starts_with(concat("step ", step, ": ", told))) << error;
    EXPECT_TRUE(error.ends_with("; a lower optimizer.lr or a clip may help")) << error;
  }
  LineTask::factor_of_loss = {};
}

TEST(LineRunsAlone, WaitForNobodyWhereTheyAreOfOneRank) {
  const TemporaryFolder place;
  double least = 1e9;
  for (int tries = 0; tries < 4 && least >= 1; ++tries)
    ended(1, line_run(place, concat("run", tries), {"steps=1"}), [&](int, Told&) {
      return at_events([&](const std::string& seen, LoopView& view) {
        if (seen == "step_end") least = std::min(least, view.state().waited_ms);
      });
    });
  EXPECT_LT(least, 1);
}

// The spans "step K" of a trace, by K.
Steps traced_steps(const std::string& file) {
  Steps steps;
  if (!std::filesystem::exists(file)) return steps;
  const Json trace = Json::parse(read_text_file(file));
  for (const Json& event : trace.at("traceEvents").items())
    if (event.at("name").string().starts_with("step "))
      steps.push_back(std::stoll(event.at("name").string().substr(5)));
  return steps;
}

TEST_P(LineRuns, TraceTheStepsOfTheirWindow) {
  for (const auto& [window, steps] :
       std::vector<std::pair<std::string, Steps>>{{"profile={start: 1, steps: 2}", {1, 2}},
                                                  {"profile={start: 3, steps: 1}", {3}},
                                                  {"profile={start: 4, steps: 2}", {4, 5}},
                                                  {"profile={start: 5, steps: 9}", {5, 6}},
                                                  {"profile={start: 7, steps: 1}", {}},
                                                  {"log.trace=1", {2}},
                                                  {"log.trace=3", {2, 3, 4}}}) {
    const TemporaryFolder place;
    const Config config = line_run(place, "run", {window});
    ended(n, config);
    const RunFolder folder(config.run);
    const bool by_rank = window.starts_with("profile");
    Steps found = traced_steps(by_rank ? folder.trace_of(n - 1) : folder.trace());
    if (!by_rank && n == 2) {  // of both in one file
      std::ranges::sort(found);
      found.erase(std::unique(found.begin(), found.end()), found.end());
    }
    EXPECT_EQ(found, steps) << window << n;
    EXPECT_FALSE(std::filesystem::exists(by_rank ? folder.trace() : folder.trace_of(0)));
  }
}

TEST(LineRunsAlone, ResumeInsideTheWindowThatIsTraced) {
  const TemporaryFolder place;
  for (const auto& [stop, steps] : std::vector<std::pair<std::int64_t, Steps>>{{1, {3, 4, 5}}, {3, {4, 5}}, {5, {}}}) {
    const std::string run = concat("run", stop);
    const auto config = [&](const char* resume) {
      return line_run(place, run, {"profile={start: 3, steps: 3}", "steps=8", resume});
    };
    ended(1, config("resume=never"), [&, at = stop](int, Told& told) {
      told.stop_after = at;
      return Callbacks();
    });
    const RunFolder folder(place / run);
    std::filesystem::remove(folder.trace_of(0));
    ended(1, config("resume=auto"));
    EXPECT_EQ(traced_steps(folder.trace_of(0)), steps) << stop;
  }
}

TEST_P(LineRuns, MakeTheirFolderAgainWithWhatLiesThere) {
  const Config config = line_run(place, "run", {"checkpoint.memory_every=1", "checkpoint.every=3"});
  const RunFolder folder(config.run);
  std::string session, again;
  const Ended run = ended(n, config, [&](int rank, Told&) {
    return at_events([&, rank](const std::string& seen, LoopView& view) {
      if (rank != 0) return;
      if (seen == "step_begin" && view.state().step == 2) {
        session = read_text_file(folder.memory_session());
        std::filesystem::remove_all(folder.path());
      }
      if (seen == "step_begin" && view.state().step == 5 && std::filesystem::exists(folder.memory_session()))
        again = read_text_file(folder.memory_session());
    });
  });
  EXPECT_EQ(run.error, "");
  EXPECT_NE(session, "");
  EXPECT_EQ(again, session) << n;
  EXPECT_NE(
      run.words.find(concat("'", folder.path(), "' was removed while this run wrote into it; it is made again\n")),
      std::string::npos);
  EXPECT_EQ(folder.checkpoint_steps(), (Steps{3, 6}));
}

}  // namespace
}  // namespace keel
