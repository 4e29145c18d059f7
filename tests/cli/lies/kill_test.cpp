// Ranks that are killed while they save. Acceptance test 33: the newest checkpoint always loads, its hashes are right,
// and it is never older than the last one that was told.

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

// Where a rank dies in the second checkpoint, without the rank.
struct Point {
  const char *name, *lie;
  bool of_all;  // or of the first rank
};
constexpr Point kPoints[] = {
    {"before its file is opened", "create 1 kill */step-00000004.*/.model*", true},
    {"in the midst of a write", "write 1 kill-midway */step-00000004.*/.model*", true},
    {"before the flush", "sync 1 kill */step-00000004.*/.optimizer*", true},
    {"after the flush", "sync 1 kill-after */step-00000004.*/.optimizer*", true},
    {"before the vote", "create 1 kill */step-00000004.*/.part-*", true},
    {"after the vote", "rename 1 kill-after */step-00000004.*/part-*", true},
    {"before the manifest", "create 1 kill */step-00000004.*/.manifest*", false},
    {"in the midst of the manifest", "write 1 kill-midway */step-00000004.*/.manifest*", false},
    {"before the folder has its name", "rename 1 kill */step-00000004", false},
    {"when the folder has its name", "rename 1 kill-after */step-00000004", false},
    {"before `latest`", "rename 2 kill */checkpoints/latest", false},
    {"after `latest`", "rename 2 kill-after */checkpoints/latest", false},
};

void expect_survives(LyingRun& run, const Point& point, int rank, const std::string& weights) {
  SCOPED_TRACE(concat("rank ", rank, ' ', point.name));
  run.clear();
  const Session session = run.run({concat(rank, ' ', point.lie)});
  EXPECT_EQ(run.lies_told(), 1) << session.out << session.err;
  EXPECT_EQ(session.told, 2) << session.out;
  run.expect_goes_on(session, weights);
}

// By one rank after the other.
void expect_survives(By by, bool async, const std::vector<Point>& points) {
  LyingRun run(3, by, async);
  int next = async ? 1 : 0;
  for (const Point& point : points)
    expect_survives(run, point, point.of_all ? next++ % 3 : 0, undisturbed(3, async).weights);
}

const std::vector<Point> kAllPoints(std::begin(kPoints), std::end(kPoints));

struct Kill : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, Kill, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("Async") : std::string("Sync"); });

// Half of the points in each mode.
TEST_P(Kill, AtAnyPointOfASaveLosesNoCheckpoint) {
  std::vector<Point> points = kAllPoints;
  std::mt19937 random = by_commit();
  std::shuffle(points.begin(), points.end(), random);
  const auto half = points.begin() + std::ssize(points) / 2;
  expect_survives(By::tcp, GetParam(),
                  GetParam() ? std::vector(points.begin(), half) : std::vector(half, points.end()));
}

TEST(KillOverMpi, AtAPointOfASaveLosesNoCheckpoint) {
  if (const std::string reason = why_no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
  expect_survives(By::mpi, mode_by_commit(), {kPoints[by_commit()() / 2 % std::size(kPoints)]});
}

struct SlowKill : ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowKill, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("Async") : std::string("Sync"); });

TEST_P(SlowKill, AtAnyPointOfASaveLosesNoCheckpoint) { expect_survives(By::tcp, GetParam(), kAllPoints); }
TEST_P(SlowKill, AtAnyPointOfASaveLosesNoCheckpointOverMpi) {
  if (const std::string reason = why_no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
  expect_survives(By::mpi, GetParam(), kAllPoints);
}

// A run with a checkpoint after each of its steps, a rank of which is killed whenever it may be after the beginning.
void expect_survives_at_random(By by, int times) {
  using Clock = std::chrono::steady_clock;
  const std::string often = "steps=8 checkpoint.every=1 checkpoint.busy=wait";
  std::mt19937 random = by_commit();
  LyingRun run(3, by, true, often);
  const auto began = Clock::now();
  Session session = run.run({});
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  EXPECT_EQ(session.told, 8) << session.out << session.err;
  const std::string weights = run.weights();
  for (int i = 0; i < times && !::testing::Test::HasFailure(); ++i) {
    const int rank = static_cast<int>(random() % 3);
    const auto when = std::chrono::microseconds(random() % static_cast<std::uint32_t>(took.count()));
    SCOPED_TRACE(concat("rank ", rank, " after ", when.count(), " us"));
    run.clear();
    run.begin({});
    EXPECT_TRUE(LyingRun::wait_until([&] { return run.sandbox.has("made/logs"); }));  // the ranks have met
    std::this_thread::sleep_for(when);
    if (const pid_t process = run.process_of(rank); process > 0) ::kill(process, SIGKILL);
    run.expect_goes_on(run.end(), weights);
  }
}

TEST(KillAtRandomTimes, LosesNoCheckpoint) { expect_survives_at_random(By::tcp, 4); }
TEST(SlowKillAtRandomTimes, LosesNoCheckpoint) { expect_survives_at_random(By::tcp, 200); }
TEST(SlowKillAtRandomTimes, LosesNoCheckpointOverMpi) {
  if (const std::string reason = why_no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
  expect_survives_at_random(By::mpi, 200);
}

}  // namespace
}  // namespace keel::cli
