// Copies in the memory of hosts: ranks that are killed while they make them or make a checkpoint of them, memory that
// is full, and what is left behind. Three ranks; the first two are on one host.

#include <span>

#include "tests/cli/lies/lying_run.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

// Copies of steps 2 and 4, and checkpoints of step 6 alone, which is the last.
constexpr const char* kCopies = "checkpoint.every=100 checkpoint.memory_every=2";
const std::string kDies = "0 mkdir 1 kill */step-00000006.*";  // before the last step is saved

struct MemoryRun : LyingRun {
  explicit MemoryRun(const std::string& more = kCopies, bool async = false) : LyingRun(3, By::tcp, async, more) {}

  void forget() const {
    clear();
    for (const int rank : {0, 2}) lose(rank);
  }
  // The memory of a rank's host.
  void lose(int rank) const { fs::remove_all(memory_of(rank)); }
  // All that is there, by what its path ends with.
  std::vector<fs::path> in_memory(const std::string& name = "") const {
    std::vector<fs::path> found;
    for (const int rank : {0, 2})
      for (const auto& entry : fs::recursive_directory_iterator(memory_of(rank)))
        if (entry.path().string().ends_with(name)) found.push_back(entry.path());
    return found;
  }
  // Goes on to the end, to the same weights. Returns after which step; 0: anew.
  std::int64_t go_on(const std::string& more = "") {
    said = run({}, more + " resume=auto").out;
    EXPECT_TRUE(weights() == undisturbed(3, false).weights) << said;
    EXPECT_TRUE(in_memory().empty()) << in_memory().front();
    EXPECT_FALSE(sandbox.has("made/checkpoints/in-memory"));
    std::smatch step;
    const bool goes_on = std::regex_search(said, step, std::regex("goes on after step ([0-9]+) from "));
    return goes_on ? std::stoll(step[1]) : 0;
  }
  bool was_in_memory() const { return said.find(", which was in the memory of ") != std::string::npos; }

  std::string said;
};

struct MemoryPoint {
  const char *name, *lie;
  std::vector<int> ranks;
  std::int64_t least;  // the oldest step that may be gone on from
};

void expect_survives_in_memory(MemoryRun& run, std::span<const MemoryPoint> points, std::int64_t newest) {
  for (const MemoryPoint& point : points)
    for (const int rank : point.ranks) {
      SCOPED_TRACE(concat("rank ", rank, ' ', point.name));
      run.forget();
      const Session session = run.run({concat(rank, ' ', point.lie)});
      EXPECT_EQ(run.lies_told(), 1) << session.out << session.err;
      const std::int64_t step = run.go_on();
      EXPECT_TRUE(run.was_in_memory()) << run.said;
      EXPECT_TRUE(step == newest || step == point.least) << run.said;
    }
}

TEST(MemoryKill, AtAnyPointOfACopyLeavesTheOneBeforeOrTheNewOne) {
  const MemoryPoint points[] = {
      {"before its own files", "create 1 kill */step-4/model*", {1}, 2},
      {"in the midst of them", "create 1 kill */step-4/optimizer*", {2}, 2},
      {"before it sends them", "rename 1 kill-after */step-4/part-*", {1}, 2},
      {"before another's files", "create 2 kill */step-4/model*", {2}, 2},
      {"before they are told", "rename 2 kill */step-4/part-*", {0}, 2},
      {"before the copy counts", "create 1 kill */step-4/.copy.json*", {0, 2}, 2},
      {"when it counts", "rename 1 kill-after */step-4/copy.json", {2}, 4},
      {"before the other one counts no more", "unlink 1 kill */step-2/copy.json", {0}, 4},
  };
  MemoryRun run;
  expect_survives_in_memory(run, points, 4);
}

// The third copy is written into the files of the first.
TEST(MemoryKill, AtAnyPointAtWhichFilesAreWrittenAgainLeavesTheCopyBetween) {
  const MemoryPoint points[] = {
      {"before they are of another step", "rename 1 kill */step-3", {0}, 2},
      {"when they are", "rename 1 kill-after */step-3", {2}, 2},
      {"when its own are written", "create 1 kill */step-3/.part-*", {1}, 2},
      {"when another's are written", "rename 2 kill */step-3/part-*", {2}, 2},
      {"when they count", "rename 1 kill-after */step-3/copy.json", {0}, 3},
  };
  MemoryRun run("checkpoint.every=100 checkpoint.memory_every=1");
  expect_survives_in_memory(run, points, 3);
}

TEST(MemoryKill, AtAnyPointAtWhichACheckpointIsMadeOfACopyLosesNothing) {
  const MemoryPoint points[] = {
      {"before a file", "create 1 kill */step-00000004.*/.model*", {2}, 4},
      {"in the midst of one", "write 1 kill-midway */step-00000004.*/.optimizer*", {0}, 4},
      {"after a part", "rename 1 kill-after */step-00000004.*/part-*", {2}, 4},
      {"before the manifest", "create 1 kill */step-00000004.*/.manifest*", {0}, 4},
      {"before the folder has its name", "rename 1 kill */step-00000004", {0}, 4},
      {"when it has", "rename 1 kill-after */step-00000004", {0}, 4},
      {"before the session counts", "rename 1 kill */in-memory", {0}, 4},
      {"when it counts", "rename 1 kill-after */in-memory", {0}, 4},
      {"as the copies of the session before go", "unlink 1 kill */step-4/*", {2}, 4},
  };
  MemoryRun run;
  for (const MemoryPoint& point : points) {
    SCOPED_TRACE(point.name);
    run.forget();
    run.run({kDies});
    const Session session = run.run({concat(point.ranks.front(), ' ', point.lie)}, "resume=auto");
    EXPECT_EQ(run.lies_told(), 1) << session.out << session.err;
    EXPECT_EQ(run.go_on(), 4) << run.said;
  }
}

TEST(MemoryFull, IsToldOnceAndTheTrainingGoesOnWithTheCopyBefore) {
  MemoryRun run("checkpoint.every=100 checkpoint.memory_every=1");
  run.run({kDies, "2 write 1+ fail:28 */step-[345]/*"});
  for (int rank = 0; rank < 3; ++rank) {
    const std::string log = run.sandbox.read(concat("made/logs/rank-", rank, ".log"));
    const std::regex line(
        "error: no copy of step 3 in the memory of hosts: rank 2: cannot write '[^\n]*/step-3/[^\n]*: "
        "No space left on device");
    EXPECT_TRUE(std::regex_search(log, line)) << log;
    EXPECT_EQ(log.find("no copy of step"), log.rfind("no copy of step")) << log;
  }
  EXPECT_FALSE(run.in_memory("step-2/copy.json").empty());
  EXPECT_TRUE(run.in_memory("step-3").empty() && run.in_memory("step-5").empty());
  EXPECT_EQ(run.go_on(), 2) << run.said;
}

// A copy of the second host takes 0.8 MiB of it.
TEST(MemoryFull, OfOneMebibyteIsToldAndTheCopyBeforeStays) {
  MemoryRun run;
  run.sandbox.write("script",
                    concat("mkdir -p shm-1 && mount -t tmpfs -o size=1m tmpfs shm-1 || exit 1\n", run.script({kDies}),
                           "mkdir seen\nmv code out-0 seen\ncp -r shm-1 seen\n", run.script({}, "resume=auto")));
  run.begin_script(concat("cd '", run.sandbox / "", "' && unshare --user --map-root-user --mount sh script 2>why"));
  const Session session = run.end();
  if (!run.sandbox.has("seen/out-0")) GTEST_SKIP() << "no file system can be mounted here: " << run.sandbox.read("why");
  const std::string before = run.sandbox.read("seen/out-0");
  EXPECT_NE(before.find("no copy of step 4 in the memory of hosts: rank 2: cannot write "), std::string::npos)
      << before;
  EXPECT_NE(before.find("No space left on device"), std::string::npos) << before;
  EXPECT_EQ(session.code, 0) << session.err;
  EXPECT_NE(session.out.find("goes on after step 2 from "), std::string::npos) << session.out;
  EXPECT_TRUE(run.weights() == undisturbed(3, false).weights);
}

TEST(MemoryFull, ForAWhileIsOverWhenACopyIsMadeAgain) {
  MemoryRun run("checkpoint.every=100 checkpoint.memory_every=1");
  const Session session = run.run({kDies, "2 write 1+ fail:28 */step-2/*"});
  EXPECT_NE(session.out.find("copied step 3 into the memory of hosts again"), std::string::npos) << session.out;
  EXPECT_EQ(run.go_on(), 5) << run.said;
}

TEST(MemoryLost, OnOneHostIsOnTheOtherAndOnBothTheDiskHasWhatIsLeft) {
  for (const std::vector<int>& lost : {std::vector<int>{0}, {2}, {0, 2}}) {
    MemoryRun run("checkpoint.every=3 checkpoint.memory_every=2");
    run.run({kDies});
    for (const int rank : lost) run.lose(rank);
    EXPECT_EQ(run.go_on(), lost.size() == 1 ? 4 : 3) << run.said;
    EXPECT_EQ(run.was_in_memory(), lost.size() == 1) << run.said;
  }
}

void flip_last_byte(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(MemoryDamage, OfAllThatThereIsOfAFileIsNamedInALineAndTheDiskTakesItsPlace) {
  MemoryRun run("checkpoint.every=3 checkpoint.memory_every=2");
  run.run({kDies});
  const std::vector<fs::path> files = run.in_memory("step-4/model-2-of-3.safetensors");
  ASSERT_EQ(files.size(), 2u);
  for (const fs::path& file : files) flip_last_byte(file);
  EXPECT_EQ(run.go_on(), 3);
  EXPECT_NE(run.said.find("the copy of step 4 in memory is not usable: "), std::string::npos) << run.said;
  EXPECT_NE(run.said.find("model-2-of-3.safetensors' has changed since it was written"), std::string::npos) << run.said;
}

TEST(MemoryDamage, OfTheDiskIsMendedByACopyOfTheSameStep) {
  for (const char* name : {"model-2-of-3.safetensors", "manifest.json"}) {
    MemoryRun run("checkpoint.every=4 checkpoint.memory_every=2 checkpoint.busy=wait", true);
    // Copied before it was written.
    run.run({"0 mkdir 1 kill */step-00000006.*"});
    if (!run.sandbox.has("made/checkpoints/step-00000004")) GTEST_SKIP() << "the disk was slower than two steps";
    flip_last_byte(run.sandbox / concat("made/checkpoints/step-00000004/", name));
    EXPECT_EQ(run.go_on(), 4) << run.said;
    EXPECT_TRUE(run.was_in_memory()) << run.said;
  }
}

TEST(MemoryStrays, OfARunThatWasDeletedAreNotTakenAndGo) {
  MemoryRun run;
  run.run({kDies});
  EXPECT_FALSE(run.in_memory("step-4").empty());
  run.clear();
  EXPECT_EQ(run.go_on(), 0);
  EXPECT_NE(run.said.find("holds no checkpoint: the run begins anew"), std::string::npos) << run.said;
}

TEST(MemoryStrays, OfOneRunAreNotAnothers) {
  MemoryRun run;
  run.run({kDies});
  const std::vector<fs::path> before = run.in_memory();
  const Session other = run.run({}, "run=other");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(run.in_memory(), before);
  EXPECT_EQ(run.go_on(), 4);
}

TEST(MemoryStrays, GoWithASessionThatMakesNoCopies) {
  MemoryRun run;
  run.run({kDies});
  EXPECT_EQ(run.go_on("checkpoint.memory_every=0"), 4) << run.said;
}

}  // namespace
}  // namespace keel::cli
