// A file system that lies to a run that goes on, that replaces a checkpoint, and that ends.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

// Ends a run of three ranks before its third checkpoint.
void begin_and_die(LyingRun& run) {
  const Session session = run.run({"0 mkdir 1 kill */step-00000006.*"});
  EXPECT_EQ(session.told, 4) << session.out << session.err;
}

TEST(LiesToAResumingRun, OfFilesThatARankSeesLaterAreWaitedFor) {
  LyingRun run(3, By::tcp, false);
  begin_and_die(run);
  const Session session =
      run.run({"1 see 1+ hide:200 */step-00000004/*", "2 see 1+ hide:200 */step-00000004/*"}, "resume=auto");
  EXPECT_GE(run.lies_told(), 2);
  EXPECT_NE(session.out.find("goes on after step 4 "), std::string::npos) << session.out;
  EXPECT_EQ(session.out.find("not usable"), std::string::npos) << session.out;
  EXPECT_TRUE(run.weights() == undisturbed(3, false).weights);
}

TEST(LiesToAResumingRun, OfShortReadsChangeNothing) {
  LyingRun run(3, By::tcp, false);
  begin_and_die(run);
  const Session session =
      run.run({"0 read 1+ short:1000 */step-00000004/*", "1 read 1+ short:1001 */step-00000004/*"}, "resume=auto");
  EXPECT_GT(run.lies_told(), 50);
  EXPECT_NE(session.out.find("goes on after step 4 "), std::string::npos) << session.out;
  EXPECT_EQ(session.out.find("not usable"), std::string::npos) << session.out;
  EXPECT_TRUE(run.weights() == undisturbed(3, false).weights);
}

TEST(LiesToAResumingRun, OfReadsThatFailSendAllRanksBackToTheCheckpointBefore) {
  for (const char* lie : {"0 read 1+ fail:5 */step-00000004/manifest.json", "0 open 1+ fail:5 */step-00000004/*",
                          "2 read 2+ fail:5 */step-00000004/*"}) {
    SCOPED_TRACE(lie);
    LyingRun run(3, By::tcp, false);
    begin_and_die(run);
    const Session session = run.run({lie}, "resume=auto");
    EXPECT_GE(run.lies_told(), 1);
    EXPECT_EQ(session.code, 0) << session.err;
    EXPECT_NE(session.out.find("warning: the checkpoint of step 4 is not usable: "), std::string::npos) << session.out;
    EXPECT_NE(session.out.find("Input/output error"), std::string::npos) << session.out;
    EXPECT_NE(session.out.find("goes on after step 2 "), std::string::npos) << session.out;
    EXPECT_TRUE(run.weights() == undisturbed(3, false).weights);
  }
}

// The last checkpoint is what the run was for.
TEST(LiesAtTheEnd, OfARunEndItWithAnErrorAndLoseNothing) {
  for (const char* lie :
       {"0 mkdir 1 fail:28 */step-00000006.*", "0 rename 1 fail:5 */step-00000006", "0 sync 1 fail:5 */step-00000006.*",
        "0 rename 3 fail:5 *made/model.safetensors", "0 rename 3+ fail:5 *made/model.safetensors"}) {
    SCOPED_TRACE(lie);
    LyingRun run(1, By::tcp, false);
    const Session session = run.run({lie});
    EXPECT_GE(run.lies_told(), 1);
    if (run.weights() != undisturbed(1, false).weights) {
      EXPECT_EQ(session.code, 2) << session.out;
      EXPECT_NE(session.err.find("keel: error: "), std::string::npos) << session.err;
    }
    run.expect_goes_on(session, undisturbed(1, false).weights);
  }
}

// In the run's folder where the second attempt works, and elsewhere where none does.
TEST(LiesAtTheEnd, ToOneOfThreeRanksAreToldAndWhatWasLearntIsSaved) {
  for (const bool again : {true, false}) {
    LyingRun run(3, By::tcp, again);
    const Session session = run.run({concat("1 sync 1", again ? "" : "+", " fail:5 */checkpoints/step-00000006.*")});
    EXPECT_GE(run.lies_told(), 1);
    EXPECT_EQ(session.code, 2) << session.out;
    EXPECT_TRUE(std::regex_search(session.err, std::regex("keel: error: rank 1: cannot [^\n]*Input/output error")))
        << session.err;
    EXPECT_TRUE(
        run.sandbox.has(again ? "made/checkpoints/step-00000006/manifest.json" : "keel-made-step-6/manifest.json"))
        << session.out;
    run.expect_goes_on(session, undisturbed(3, again).weights);
  }
}

// The checkpoint of step 4 cannot be read for once, and the run makes it again. Where the file system does not exchange
// folders in one step (EINVAL), the one that was there is set aside meanwhile.
std::vector<std::vector<std::string>> lies_to_a_replacing_run() {
  const std::string in_two_steps = "0 rename 1 fail:22 */step-00000004";
  return {
      {"0 rename 2 kill */step-00000004"},
      {"0 rename 2 kill-after */step-00000004"},
      {"0 rename 2 fail:5 */step-00000004"},
      {in_two_steps, "0 rename 1 kill */step-00000004.old"},
      {in_two_steps, "0 rename 1 kill-after */step-00000004.old"},
      {in_two_steps, "0 rename 1 fail:5 */step-00000004.old"},
      {in_two_steps, "0 rename 2 kill */step-00000004"},
      {in_two_steps, "0 rename 2 kill-after */step-00000004"},
      {in_two_steps, "0 rename 2 fail:5 */step-00000004"},
  };
}

void expect_nothing_lost(const std::vector<std::vector<std::string>>& all) {
  for (std::vector<std::string> lies : all) {
    SCOPED_TRACE(lies.back());
    LyingRun run(1, By::tcp, false);
    Session session = run.run({"0 mkdir 1 kill */step-00000006.*"});
    EXPECT_EQ(session.told, 4) << session.out << session.err;
    lies.insert(lies.end(), {"0 read 1 fail:5 */step-00000004/manifest.json", "0 mkdir 1 kill */step-00000006.*"});
    session = run.run(lies, "resume=auto");
    EXPECT_NE(session.out.find("goes on after step 2 "), std::string::npos) << session.out;
    EXPECT_GE(run.lies_told(), 2) << session.out;
    session.told = 4;
    run.expect_goes_on(session, undisturbed(1, false).weights);
  }
}

TEST(LiesToAReplacingRun, LoseNothing) {
  std::vector<std::vector<std::string>> all = lies_to_a_replacing_run();
  std::mt19937 random = by_commit();
  std::shuffle(all.begin(), all.end(), random);
  all.resize(4);
  expect_nothing_lost(all);
}
TEST(SlowLiesToAReplacingRun, LoseNothing) { expect_nothing_lost(lies_to_a_replacing_run()); }

}  // namespace
}  // namespace keel::cli
