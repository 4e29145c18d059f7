// How whole runs of the smallest model end, where they go on, what they trace, and how their models answer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "keel/runtime/json.h"
#include "keel/trainer/trained_model.h"
#include "tests/trainer/line_run_support.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;

class LineRunEnds : public LineRunsByRanks {};
INSTANTIATE_TEST_SUITE_P(ByRanks, LineRunEnds, ::testing::Values(1, 2));

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

TEST_P(LineRunEnds, EndByACallbackWithItsReason) {
  const Config config = smallest_run(place, "run", {"eval.every=2"});
  for (const auto& [event, step, last] :
       {std::tuple("step_begin", 3, 3), {"step_end", 3, 4}, {"evaluation_end", 4, 4}, {"fit_begin", 0, 0}}) {
    std::filesystem::remove_all(config.run);
    const ShownRun run = shown_run(n, config, [&, at = std::string(event), when = step](int rank, Told&) {
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

TEST_P(LineRunEnds, EndByACallbackThatThrowsAndSaveWhatWasLearnt) {
  const Config config = smallest_run(place, "run");
  for (const auto& [event, saved] : {std::pair("step_begin", 4), {"step_end", 4}, {"evaluation_end", 6}}) {
    std::filesystem::remove_all(config.run);
    std::vector<std::string> seen(2);
    // Several ranks hear of it a step later.
    const int when = n == 2 && event == std::string("step_end") ? 3 : saved;
    const ShownRun run = shown_run(n, config, [&, at = std::string(event)](int rank, Told&) {
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

TEST_P(LineRunEnds, ThatEvaluateTheirLossThemselvesSayWhereItIsNotFinite) {
  int run = 0;
  const auto failure = [&](int step, int evaluation, double factor) {
    const Config config =
        smallest_run(place, concat("run", ++run), {"optimizer={type: LBFGS, lr: 0.5}", "batch.micro=4"});
    return shown_run(n, config,
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

TEST_P(LineRunEnds, TraceTheStepsOfTheirWindow) {
  for (const auto& [window, steps] : std::vector<std::pair<std::string, Steps>>{{"{start: 1, steps: 2}", {1, 2}},
                                                                                {"{start: 3, steps: 1}", {3}},
                                                                                {"{start: 5, steps: 9}", {5, 6}},
                                                                                {"{start: 7, steps: 1}", {}}}) {
    const Config config = smallest_run(place, concat("run", window[8]), {"profile=" + window});
    const std::string words = shown_run(n, config).words;
    EXPECT_EQ(words.find("the trace has"), std::string::npos) << words;
    const RunFolder folder(config.run);
    EXPECT_EQ(traced_steps(folder.trace_of(n - 1)), steps) << window;
    EXPECT_FALSE(std::filesystem::exists(folder.trace()));
  }
}

TEST_P(LineRunEnds, TraceTheStepsBehindTheFirst) {
  for (const auto& [count, steps] : {std::pair<int, Steps>{1, {2}}, {3, {2, 3, 4}}}) {
    const Config config = smallest_run(place, concat("run", count), {concat("log.trace=", count)});
    shown_run(n, config);
    const RunFolder folder(config.run);
    Steps found = traced_steps(folder.trace());
    EXPECT_EQ(found.size(), static_cast<std::size_t>(n) * steps.size()) << "of all ranks in one file";
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    EXPECT_EQ(found, steps);
    EXPECT_FALSE(std::filesystem::exists(folder.trace_of(0)));
  }
}

TEST(LineRunsOfOne, ResumeInsideTheWindowThatIsTraced) {
  const TemporaryFolder place;
  for (const auto& [stop, steps] : std::vector<std::pair<std::int64_t, Steps>>{{1, {3, 4, 5}}, {3, {4, 5}}, {5, {}}}) {
    const std::string run = concat("run", stop);
    const auto config = [&](const char* resume) {
      return smallest_run(place, run, {"profile={start: 3, steps: 3}", "steps=8", resume});
    };
    shown_run(1, config("resume=never"), [&, at = stop](int, Told& told) {
      told.stop_after = at;
      return Callbacks();
    });
    const RunFolder folder(place / run);
    std::filesystem::remove(folder.trace_of(0));
    shown_run(1, config("resume=auto"));
    EXPECT_EQ(traced_steps(folder.trace_of(0)), steps) << stop;
  }
}

TEST_P(LineRunEnds, MakeTheirFolderAgainWithWhatLiesThere) {
  const Config config = smallest_run(place, "run", {"checkpoint.memory_every=1", "checkpoint.every=3"});
  const RunFolder folder(config.run);
  std::string session, again;
  const ShownRun run = shown_run(n, config, [&](int rank, Told&) {
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

void expect_answers_in_precisions(bool is_bf16) {
  using Precision = Strategy::Precision;
  const TemporaryFolder place;
  const Precision own = is_bf16 ? Precision::bf16 : Precision::fp32;
  const Config config =
      smallest_run(place, is_bf16 ? "bf16" : "fp32", {"steps=2", is_bf16 ? "strategy=ddp-bf16" : "strategy=ddp-fp32"});
  shown_run(1, config);
  struct Case {
    const char *strategy, *change;
    bool is_exported;
    Precision expected;
  };
  for (const Case& each : std::vector<Case>{{"", "seed=1", false, own},
                                            {"zero3", "seed=1", false, own},
                                            {"zero3-fp32", "seed=1", false, Precision::fp32},
                                            {"zero3-bf16", "seed=1", false, Precision::bf16},
                                            {"", "strategy=zero1", false, Precision::fp32},
                                            {"", "strategy=auto", false, own},
                                            {"", "strategy=zero1-bf16", false, Precision::bf16},
                                            {"", "strategy=zero1-fp32", false, Precision::fp32},
                                            {"zero1-fp32", "strategy=zero1-bf16", false, Precision::fp32},
                                            {"", "seed=1", true, Precision::fp32},
                                            {"zero2", "seed=1", true, Precision::fp32},
                                            {"zero2-bf16", "seed=1", true, Precision::bf16}})
    run_ranks(1, [&](Communicator& ranks) {
      const TrainedSource source = {.path = config.run,
                                    .strategy = each.strategy,
                                    .changes = {each.change},
                                    .is_exported = each.is_exported,
                                    .keys = config.keys};
      const TrainedModel model(source, ranks, [](LogLevel, std::string_view) {});
      EXPECT_EQ(model.config().strategy.precision, each.expected)
          << each.strategy << ' ' << each.change << ' ' << each.is_exported;
      EXPECT_EQ(model.config().threads, each.is_exported ? 0 : 1);
      EXPECT_EQ(model.step(), each.is_exported ? 0 : 2);
      EXPECT_EQ(model.run(), config.run);
    });
}

TEST(LineRunsOfOne, OfFp32AnswerInThePrecisionThatWasAskedForOrElseInTheirOwn) { expect_answers_in_precisions(false); }
TEST(LineRunsOfOne, OfBf16AnswerInThePrecisionThatWasAskedForOrElseInTheirOwn) { expect_answers_in_precisions(true); }

// Lengths in epochs are the same as before once both are measured.
TEST(LineRunsOfOne, ThatGoOnWithTheSameEpochsHaveTheSameSettings) {
  const TemporaryFolder place;
  const auto run = [&](const char* resume, const char* more) {
    return smallest_run(
        place, "run",
        {"epochs=1", "eval.every=0.5 epochs", "scheduler={type: CosineAnnealingLR, T_max: 3}", resume, more});
  };
  shown_run(1, run("resume=never", "seed=1"), [](int, Told& told) {
    told.stop_after = 1;
    return Callbacks();
  });
  const std::string same = shown_run(1, run("resume=auto", "seed=1"), [](int, Told& told) {
                             told.stop_after = 2;
                             return Callbacks();
                           }).words;
  EXPECT_EQ(same.find("other settings"), std::string::npos) << same;
  const std::string other = shown_run(1, run("resume=auto", "clip=0.5")).words;
  EXPECT_NE(other.find("goes on with other settings than before: clip 0.5 instead of 0\n"), std::string::npos) << other;
}

TEST_P(LineRunEnds, RefuseAMicroBatchWhoseLossHasOtherTerms) {
  for (const int bad : {2, 3}) {
    const Config config = smallest_run(place, concat("run", bad), {"batch={global: 8, micro: 1}"});
    const ShownRun run = shown_run(n, config, [&](int, Told&) {
      auto micro = std::make_shared<int>();
      LineTask::change_loss = [=](Loss& loss, const Variable& error) {
        if (++*micro == bad) loss = Loss().add("other", error, "rows");
      };
      return Callbacks();
    });
    EXPECT_NE(run.error.find(concat("step 1: the loss of micro-batch ", bad, " has\n")), std::string::npos)
        << run.error;
    EXPECT_NE(run.error.find("and that of the first has\n"), std::string::npos) << run.error;
  }
  LineTask::change_loss = {};
}

}  // namespace
}  // namespace keel
