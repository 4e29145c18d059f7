// A file system that lies while a run makes its checkpoints: nothing is lost, and nothing is taken that is
// half-written.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

// A call of a rank, and a lie about it.
struct Case {
  int rank = 0, nth = 0;  // among all changes on such paths
  std::string call, what, path;
};

std::vector<std::string> lies_about(const std::string& call) {
  const auto fail = [](int code) { return concat("fail:", code); };
  if (call == "write") return {fail(EIO), fail(EDQUOT), "short:1", "kill-midway"};
  if (call == "rename") return {fail(EIO), concat("done:", EIO), "kill", "kill-after"};
  if (call == "sync") return {fail(EIO), fail(ENOSPC)};
  if (call == "create") return {fail(EACCES), fail(EMFILE)};
  return {fail(ENOSPC), "kill-after"};
}

// Of what ranks do with files.
struct Scope {
  std::string folder, from, to;  // parts of paths; the call that has the last one does not count
};
const Scope kSecondCheckpoint = {"made/checkpoints/", "step-00000004", "step-00000006"};
const Scope kWholeRun = {"made", "made", "none"};

// All lies about what ranks change.
std::vector<Case> all_cases(const Undisturbed& run, const Scope& scope) {
  std::vector<Case> found;
  for (std::size_t rank = 0; rank < run.changes.size(); ++rank) {
    int nth = 0;
    bool has_begun = false;
    for (const std::string& change : run.changes[rank]) {
      const std::string call = change.substr(0, change.find(' ')), path = change.substr(call.size() + 1);
      if (path.find(scope.folder) == std::string::npos) continue;
      ++nth;
      has_begun |= path.find(scope.from) != std::string::npos;
      if (path.find(scope.to) != std::string::npos) break;
      if (!has_begun) continue;
      for (const std::string& what : lies_about(call)) found.push_back({static_cast<int>(rank), nth, call, what, path});
    }
  }
  return found;
}

// Some of them, drawn by the commit.
std::vector<Case> some_of(std::vector<Case> cases, std::size_t most) {
  std::mt19937 random = by_commit();
  std::shuffle(cases.begin(), cases.end(), random);
  cases.resize(std::min(cases.size(), most));
  return cases;
}

std::string text_of(const Case& lie) {
  return concat("rank ", lie.rank, ", ", lie.call, " number ", lie.nth, ", ", lie.what, ": ", lie.path);
}

// The run dies when it begins the third checkpoint, so that the second is the newest.
void expect_nothing_lost(LyingRun& run, const Case& lie, const Undisturbed& whole) {
  SCOPED_TRACE(text_of(lie));
  run.clear();
  const Session session = run.run({concat(lie.rank, " change ", lie.nth, ' ', lie.what, " *made/checkpoints/*"),
                                   "0 mkdir 1 kill */step-00000006.*"});
  const bool dies = lie.what.starts_with("kill");
  EXPECT_EQ(run.lies_told(), dies ? 1 : 2) << "the training did not go on: " << session.out << session.err;
  EXPECT_GE(session.told, lie.what.starts_with("short") ? 4 : 2) << session.out;
  if (!dies && session.told != 4) {
    EXPECT_NE(session.out.find("error: no checkpoint of step 4: "), std::string::npos) << session.out;
  }
  run.expect_goes_on(session, whole.weights);
}

void expect_nothing_lost(int ranks, By by, bool async, std::size_t most) {
  const Undisturbed& whole = undisturbed(ranks, async);
  const std::vector<Case> cases = all_cases(whole, kSecondCheckpoint);
  EXPECT_GT(cases.size(), 60u);
  LyingRun run(ranks, by, async);
  for (const Case& lie : some_of(cases, most)) {
    expect_nothing_lost(run, lie, whole);
    if (::testing::Test::HasFailure()) break;
  }
}

// Also where the run cannot go on.
void expect_nothing_lost_wherever(bool async, std::size_t most) {
  const Undisturbed& whole = undisturbed(1, async);
  const std::vector<Case> cases = all_cases(whole, kWholeRun);
  EXPECT_GT(cases.size(), 200u);
  LyingRun run(1, By::tcp, async);
  for (const Case& lie : some_of(cases, most)) {
    SCOPED_TRACE(text_of(lie));
    run.clear();
    const Session session = run.run({concat("0 change ", lie.nth, ' ', lie.what, " *made*")});
    EXPECT_EQ(run.lies_told(), 1) << session.out << session.err;
    run.expect_goes_on(session, whole.weights);
    if (::testing::Test::HasFailure()) break;
  }
}

constexpr std::size_t kAll = 1'000'000;

std::string name_of_mode(bool async) { return async ? "Async" : "Sync"; }

struct Lies : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, Lies, ::testing::Bool(), [](const auto& info) { return name_of_mode(info.param); });

TEST_P(Lies, ToARankAloneLoseNothing) { expect_nothing_lost(1, By::tcp, GetParam(), 8); }
TEST_P(Lies, AnywhereInARunLoseNothing) { expect_nothing_lost_wherever(GetParam(), 5); }
TEST_P(Lies, ToTwoRanksLoseNothing) { expect_nothing_lost(2, By::tcp, GetParam(), 2); }
TEST_P(Lies, ToThreeRanksLoseNothing) { expect_nothing_lost(3, By::tcp, GetParam(), 3); }
TEST(LiesOverMpi, ToThreeRanksLoseNothing) {
  if (const std::string reason = why_no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
  expect_nothing_lost(3, By::mpi, mode_by_commit(), 1);
}

struct SlowLies : ::testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowLies, ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool()),
                         [](const auto& info) {
                           return concat(name_of_mode(std::get<1>(info.param)), "To", std::get<0>(info.param));
                         });

TEST_P(SlowLies, AtAnyCallLoseNothing) {
  expect_nothing_lost(std::get<0>(GetParam()), By::tcp, std::get<1>(GetParam()), kAll);
}
TEST_P(SlowLies, OverMpiLoseNothing) {
  if (const std::string reason = why_no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
  expect_nothing_lost(std::get<0>(GetParam()), By::mpi, std::get<1>(GetParam()), 30);
}

struct SlowLiesAnywhere : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowLiesAnywhere, ::testing::Bool(),
                         [](const auto& info) { return name_of_mode(info.param); });

TEST_P(SlowLiesAnywhere, InARunLoseNothing) { expect_nothing_lost_wherever(GetParam(), kAll); }

// Until then the training goes on, and no save fails.
TEST(LiesAboutVisibility, OfFilesThatOtherRanksSeeLaterAreWaitedFor) {
  LyingRun run(3, By::tcp, mode_by_commit());
  const Session session = run.run({"1 see 1+ hide:200 */step-00000002.*.tmp", "0 see 1+ hide:200 */part-2.json",
                                   "0 see 1+ hide:200 */step-00000004.*/model-2-of-3.safetensors"});
  EXPECT_GE(run.lies_told(), 3);
  EXPECT_EQ(session.out.find("error: "), std::string::npos) << session.out;
  EXPECT_EQ(session.told, LyingRun::kSteps) << session.err;
  run.expect_goes_on(session, undisturbed(3, mode_by_commit()).weights);
}

}  // namespace
}  // namespace keel::cli
