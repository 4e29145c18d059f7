// What a run does where a checkpoint is due while the one before is still being written, as its disk is slow.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

// A run with a checkpoint after each of six steps, whose last rank does not see the first one's folder for two seconds.
void expect_saves(int ranks, const std::string& busy, const std::vector<int>& steps) {
  SCOPED_TRACE(concat(ranks, " ranks, ", busy));
  LyingRun run(ranks, By::tcp, true, concat("checkpoint.every=1 checkpoint.keep=100 checkpoint.busy=", busy));
  const Session session = run.run({concat(ranks - 1, " look 1+ hide:2000 */step-00000001.*.tmp")});
  ASSERT_TRUE(session.has_ended);
  ASSERT_EQ(session.code, 0) << session.out << session.err;
  EXPECT_GT(run.lies_told(), 0);
  const std::string said = session.out + session.err;
  for (int step = 1; step <= LyingRun::kSteps; ++step) {
    const bool is_there = std::find(steps.begin(), steps.end(), step) != steps.end();
    EXPECT_EQ(run.sandbox.has(concat("made/checkpoints/step-0000000", step, "/manifest.json")), is_there) << step;
    const std::string skipped =
        concat("no checkpoint of step ", step, ": that of step 1 is still being written (checkpoint.busy: skip)");
    EXPECT_EQ(said.find(skipped) == std::string::npos, is_there) << step << ": " << said;
  }
}

TEST(BusyDisk, IsWaitedForAndEveryCheckpointIsMade) {
  for (const int ranks : {1, 2}) expect_saves(ranks, "wait", {1, 2, 3, 4, 5, 6});
}

TEST(BusyDisk, SkipsWhatIsDueMeanwhileAndSaysSoButNotTheLast) {
  for (const int ranks : {1, 2}) expect_saves(ranks, "skip", {1, 6});
}

}  // namespace
}  // namespace keel::cli
