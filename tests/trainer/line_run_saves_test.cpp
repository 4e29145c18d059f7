// What whole runs of the smallest model save, where that fails, and that they go on from there.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "keel/trainer/checkpoint_list.h"
#include "tests/trainer/line_run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

class LineRunSaves : public LineRunsByRanks {};
INSTANTIATE_TEST_SUITE_P(ByRanks, LineRunSaves, ::testing::Values(1, 2));

Callbacks in_step(int rank, std::int64_t step, std::function<void()> what) {
  return at_events([=, what = std::move(what)](const std::string& seen, LoopView& view) {
    if (rank == 0 && seen == "step_end" && view.state().step == step) what();
  });
}

TEST_P(LineRunSaves, GoOnAsIfTheyHadNeverStopped) {
  const std::string stage = n == 1 ? "ddp" : "zero3";
  const auto run = [&](const char* name, const char* more) {
    return smallest_run(
        place, name, {concat("strategy=", stage, "-fp32"), "optimizer={type: AdamW, lr: 0.01}", more, "eval.every=2"});
  };
  const ShownRun whole = shown_run(n, run("whole", "seed=1"));
  shown_run(n, run("parts", "seed=1"), [&](int rank, Told& told) {
    if (rank == n - 1) told.stop_after = n == 1 ? 3 : 2;  // several hear of it a step later
    return Callbacks();
  });
  const RunFolder parts(place / "parts");
  EXPECT_EQ(parts.checkpoint_steps(), Steps{3});
  const ShownRun rest = shown_run(n, run("parts", "resume=auto"));
  EXPECT_NE(rest.words.find(concat("goes on after step 3 from ", parts.checkpoint(3), '\n')), std::string::npos)
      << rest.words;
  ASSERT_EQ(rest.steps.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rest.steps[i].step, whole.steps[3 + i].step);
    EXPECT_EQ(rest.steps[i].loss, whole.steps[3 + i].loss);
    EXPECT_EQ(rest.steps[i].grad_norm, whole.steps[3 + i].grad_norm);
  }
  EXPECT_TRUE(weights_of(run("whole", "seed=1")) == weights_of(run("parts", "seed=1")));
}

TEST_P(LineRunSaves, TellOfCheckpointsThatCannotBeMadeAndGoOn) {
  const Config config = smallest_run(place, "run", {"checkpoint.every=2", "checkpoint.keep=9"});
  const RunFolder folder(config.run);
  const std::string checkpoints = folder.path() + "/checkpoints";
  const ShownRun run = shown_run(n, config, [&](int rank, Told&) {
    return at_events([=](const std::string& seen, LoopView& view) {
      if (rank != 0 || seen != "step_end") return;
      if (view.state().step == 3) {
        fs::rename(checkpoints, checkpoints + "-aside");
        write_text_file(checkpoints, "");
      }
      if (view.state().step == 5) {
        fs::remove(checkpoints);
        fs::rename(checkpoints + "-aside", checkpoints);
      }
    });
  });
  EXPECT_EQ(run.error, "");
  const std::size_t told = run.words.find("no checkpoint of step 4: ");
  ASSERT_NE(told, std::string::npos) << run.words;
  EXPECT_EQ(run.words.find("no checkpoint of step ", told + 1), std::string::npos) << run.words;
  EXPECT_EQ(folder.checkpoint_steps(), (Steps{2, 6}));
  EXPECT_EQ(read_whole(folder.checkpoint(6)).step, 6);
  EXPECT_EQ(RunFolder::named_by(folder.latest()), "step-00000006");
}

TEST_P(LineRunSaves, LeaveWhatWasLearntElsewhereWhereTheirFolderIsTaken) {
  fs::create_directory(place / "here");
  const fs::path before = fs::current_path();
  fs::current_path(place / "here");
  const Config config = smallest_run(place, "run");
  const ShownRun run = shown_run(n, config, [&](int rank, Told&) {
    return in_step(rank, 3, [&] {
      fs::remove_all(config.run);
      fs::create_directory(config.run);
      write_text_file(RunFolder(config.run).config(), "steps: 1\n");
    });
  });
  fs::current_path(before);
  EXPECT_EQ(run.error,
            concat("'", config.run, "' was removed while this run wrote into it, and holds another run now"));
  const std::int64_t step = n == 1 ? 4 : 5;  // several hear of it a step later
  const std::string saved = concat(place / "here", "/keel-run-step-", step);
  EXPECT_EQ(read_whole(saved).step, step);
  EXPECT_NE(run.words.find(concat("what was learnt up to step ", step, " is in '", saved, "'; resume=", saved,
                                  " run=OTHER goes on from there\n")),
            std::string::npos)
      << run.words;
  const ShownRun rest = shown_run(n, smallest_run(place, "rest", {"resume=" + saved}));
  EXPECT_EQ(rest.steps.size(), static_cast<std::size_t>(6 - step)) << rest.error;
  shown_run(n, smallest_run(place, "whole"));
  EXPECT_TRUE(weights_of(smallest_run(place, "rest")) == weights_of(smallest_run(place, "whole")));
}

TEST_P(LineRunSaves, KeepTheNewestAndThoseOfEveryKthStep) {
  const Config config = smallest_run(place, "run", {"checkpoint={every: 1, keep: 1, keep_every: 4}"});
  shown_run(n, config);
  EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), (Steps{4, 6}));
  const Config two = smallest_run(place, "two", {"checkpoint={every: 1, keep: 2}", "steps=4"});
  shown_run(n, two);
  EXPECT_EQ(RunFolder(two.run).checkpoint_steps(), (Steps{3, 4}));
}

// It learns, and then its rate is so high that it does not.
TEST_P(LineRunSaves, KeepTheBestOneAndItsName) {
  const Config config = smallest_run(place, "run",
                                     {"checkpoint={keep: 1, best: validation_loss}", "eval.every=1",
                                      "optimizer.lr=0.01", "scheduler={type: StepLR, step_size: 3, gamma: 100}"});
  shown_run(n, config);
  const RunFolder folder(config.run);
  EXPECT_EQ(folder.checkpoint_steps(), (Steps{3, 6}));
  EXPECT_EQ(RunFolder::named_by(folder.best()), "step-00000003");
}

}  // namespace
}  // namespace keel
