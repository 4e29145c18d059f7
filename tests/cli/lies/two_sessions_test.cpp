// A rank that stops in the midst of a save, is taken for dead, and goes on when the run was started again.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

struct TwoSessions : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, TwoSessions, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("Async") : std::string("Sync"); });

// What a session leaves, apart from what its ranks say.
std::map<std::string, std::string> files_of(const LyingRun& run) {
  std::map<std::string, std::string> files = run.sandbox.contents();
  std::erase_if(
      files, [](const auto& file) { return !file.first.starts_with("made/") || file.first.starts_with("made/logs/"); });
  return files;
}

// Begins a run one rank of which stops in its second checkpoint, and kills the others. Returns the one that stands.
pid_t begin_and_stop(LyingRun& run, int rank, const std::string& where) {
  run.begin({concat(rank, ' ', where)});
  const pid_t stopped = run.liar();
  EXPECT_TRUE(stopped > 0 && LyingRun::stops(stopped));
  for (int r = 0; r < 3; ++r) {
    const pid_t process = run.process_of(r);
    if (r == rank) continue;
    ::kill(process, SIGKILL);
    EXPECT_TRUE(LyingRun::ends(process));
  }
  return stopped;
}

void go_on(pid_t process) {
  ::kill(process, SIGCONT);
  EXPECT_TRUE(LyingRun::ends(process));
}

constexpr const char* kPlaces[] = {"write 1 stop */step-00000004.*/.model*", "rename 1 stop */step-00000004.*/model*",
                                   "rename 1 stop */step-00000004.*/part-*"};

// One that the commit decides.
std::vector<std::string> some_place(bool async) { return {kPlaces[(by_commit()() + (async ? 1 : 0)) % 3]}; }
const std::vector<std::string> kAllPlaces(std::begin(kPlaces), std::end(kPlaces));

// The first goes on when the second has ended.
void expect_not_mixed_after(bool async, const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    SCOPED_TRACE(place);
    LyingRun run(3, By::tcp, async);
    const pid_t stopped = begin_and_stop(run, 1, place);
    const Session second = run.run({}, "resume=auto");
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_NE(second.out.find("goes on after step 2 "), std::string::npos) << second.out;
    const auto files = files_of(run);
    go_on(stopped);
    EXPECT_TRUE(files_of(run) == files);
    EXPECT_TRUE(run.weights() == undisturbed(3, async).weights);
  }
}

// The first goes on in the same save of the second.
void expect_not_mixed_in_a_save(bool async, const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    SCOPED_TRACE(place);
    LyingRun run(3, By::tcp, async);
    const pid_t stopped = begin_and_stop(run, 1, place);
    run.begin({"0 rename 1 stop */step-00000004", "0 mkdir 1 kill */step-00000006.*"}, "resume=auto");
    const pid_t second = run.liar();
    ASSERT_TRUE(second > 0 && LyingRun::stops(second));
    const auto files = files_of(run);
    go_on(stopped);
    EXPECT_TRUE(files_of(run) == files);
    ::kill(second, SIGCONT);
    run.expect_goes_on(run.end(), undisturbed(3, async).weights);
  }
}

TEST_P(TwoSessions, OfWhichTheFirstGoesOnWhenTheSecondHasEndedAreNotMixed) {
  expect_not_mixed_after(GetParam(), some_place(GetParam()));
}
TEST_P(TwoSessions, OfWhichTheFirstGoesOnInTheSameSaveOfTheSecondAreNotMixed) {
  expect_not_mixed_in_a_save(GetParam(), some_place(GetParam()));
}

struct SlowTwoSessions : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowTwoSessions, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("Async") : std::string("Sync"); });

TEST_P(SlowTwoSessions, AreNotMixedWhereverTheFirstStands) {
  expect_not_mixed_after(GetParam(), kAllPlaces);
  expect_not_mixed_in_a_save(GetParam(), kAllPlaces);
}

TEST_P(TwoSessions, AreNotBegunWhileTheFirstRankOfOneStands) {
  LyingRun run(3, By::tcp, GetParam());
  const pid_t stopped = begin_and_stop(run, 0, "rename 1 stop */step-00000004");
  const Session second = run.run({}, "resume=auto");
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("'made' is in use by another run, process "), std::string::npos) << second.err;
  go_on(stopped);
  Session first;
  first.told = 2;
  run.expect_goes_on(first, undisturbed(3, GetParam()).weights);
}

}  // namespace
}  // namespace keel::cli
