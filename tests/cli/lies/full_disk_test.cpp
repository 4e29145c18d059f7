// Acceptance test 34: a disk that is full when the second checkpoint is written.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

// All ranks tell it, and go on; what the failed save has written is gone again. `files`: of the folder of checkpoints.
void expect_told_by_all(const std::vector<std::string>& logs, const std::string& files) {
  for (const std::string& log : logs) {
    EXPECT_NE(log.find("step 2  saved "), std::string::npos) << log;
    EXPECT_TRUE(std::regex_search(log, std::regex("error: no checkpoint of step 4: rank [0-9]: cannot write '[^\n]*"
                                                  "No space left on device")))
        << log;
    EXPECT_EQ(log.find("step 4  saved "), std::string::npos) << log;
  }
  EXPECT_EQ(files.find(".tmp"), std::string::npos) << files;
  EXPECT_EQ(files.find("step-00000004"), std::string::npos) << files;
  EXPECT_NE(files.find("step-00000002/manifest.json"), std::string::npos) << files;
}

std::vector<std::string> logs_in(const LyingRun& run, const std::string& folder) {
  std::vector<std::string> logs;
  for (int r = 0; r < 3; ++r) logs.push_back(run.sandbox.read(concat(folder, "/rank-", r, ".log")));
  return logs;
}

struct FullDisk : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, FullDisk, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("Async") : std::string("Sync"); });

// Killed before the third checkpoint, for which there is space again.
TEST_P(FullDisk, OfOneRankIsToldByAllAndTheTrainingGoesOn) {
  for (const int rank : {0, 2}) {
    LyingRun run(3, By::tcp, GetParam());
    const Session session = run.run(
        {concat(rank, " write 1+ full:50000 */step-00000004.*/.optimizer*"), "0 mkdir 1 kill */step-00000006.*"});
    EXPECT_GE(run.lies_told(), 3) << session.out << session.err;
    std::string files;
    for (const auto& file : run.sandbox.contents()) files += file.first + "\n";
    expect_told_by_all(logs_in(run, "made/logs"), files);
    run.expect_goes_on(session, undisturbed(3, GetParam()).weights);
  }
}

// A checkpoint takes 59 of them. The last one finds a place elsewhere.
TEST(FullFileSystem, OfSixtyFourMebibytesIsToldByAllAndTheOldCheckpointLoads) {
  LyingRun run(3, By::tcp, mode_by_commit(), "model.width=432 model.layers=2 steps=5 batch.micro=1");
  run.sandbox.write("script",
                    concat("mkdir made seen && mount -t tmpfs -o size=64m tmpfs made || exit 1\n", run.script({}),
                           "mv code out-0 made/logs seen\n(cd made/checkpoints && find .) >seen/files\n",
                           run.script({}, "resume=made run=other steps=4")));
  run.begin_script(concat("cd '", run.sandbox / "", "' && unshare --user --map-root-user --mount sh script 2>why"));
  const Session session = run.end();
  if (!run.sandbox.has("seen/files")) GTEST_SKIP() << "no file system can be mounted here: " << run.sandbox.read("why");
  EXPECT_TRUE(session.has_ended);
  expect_told_by_all(logs_in(run, "seen/logs"), run.sandbox.read("seen/files"));
  EXPECT_EQ(run.sandbox.read("seen/code"), "2\n");
  EXPECT_TRUE(run.sandbox.has("keel-made-step-5/manifest.json")) << run.sandbox.read("seen/out-0");
  EXPECT_EQ(session.code, 0) << session.err;
  EXPECT_NE(session.out.find("goes on after step 2 from made/checkpoints/step-00000002"), std::string::npos)
      << session.out;
}

}  // namespace
}  // namespace keel::cli
