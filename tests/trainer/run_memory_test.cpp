// Runs that keep copies of their newest state in memory: what survives a process, what a run leaves behind, and what it
// takes of the memory.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/models/model_keys.h"
#include "keel/runtime/host_name.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/planned_model.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A memory of its own for a test.
struct MemoryOfTest {
  MemoryOfTest() {
    fs::create_directory(root);
    ::setenv(MemoryFolder::kVariable, root.c_str(), 1);
  }
  ~MemoryOfTest() { ::unsetenv(MemoryFolder::kVariable); }
  MemoryOfTest(const MemoryOfTest&) = delete;
  MemoryOfTest& operator=(const MemoryOfTest&) = delete;

  Config run(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"checkpoint.every=100", "checkpoint.keep=100", "checkpoint.memory_every=3",
                               "eval.every=0", "strategy=zero2-fp32"});
    return small_run(place, name, std::move(more));
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().extension() == ".safetensors") sum += entry.file_size();
    return sum;
  }

  TemporaryFolder place;
  std::string root = place / "shm";
};

// Is killed after a step.
class Dying : public Recorder {
 public:
  void on_step(const StepReport& report) override {
    if (report.step == 8) ::raise(SIGKILL);
  }
};

void train_and_die(int n, const Config& config) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run_ranks(n, [&](Communicator& ranks) {
      Dying dying;
      train(config, dying, ranks);
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(RunMemory, SurvivesTheProcessAndAnyNumberOfRanksGoesOnAsFromACheckpointOfThatStep) {
  for (const auto& [before, after] : {std::pair(1, 1), std::pair(3, 3), std::pair(3, 2), std::pair(2, 4)}) {
    SCOPED_TRACE(concat(before, " ranks, then ", after));
    const MemoryOfTest memory;
    const Config config = memory.run("run", {"resume=auto"});
    train_and_die(before, config);
    EXPECT_TRUE(RunFolder(config.run).checkpoint_steps().empty());
    const std::string said = train_by(after, config)[0]->messages;
    EXPECT_NE(said.find("goes on after step 6 from "), std::string::npos) << said;
    EXPECT_NE(said.find(concat(", which was in the memory of ")), std::string::npos) << said;
    EXPECT_NE(said.find(concat(':', memory.root, '\n')), std::string::npos) << said;
    train_by(before, memory.run("whole", {"checkpoint.every=6", "checkpoint.memory_every=0"}));
    const std::string at_six = RunFolder(memory.place / "whole").checkpoint(6);
    EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(6)).tokens, read_whole(at_six).tokens);
    const Config other = memory.run("other", {"resume=" + at_six, "checkpoint.memory_every=0"});
    train_by(after, other);
    EXPECT_TRUE(weights_of(config) == weights_of(other));
    EXPECT_TRUE(fs::is_empty(memory.root));
  }
}

TEST(RunMemory, IsEmptyWhereARunEndsInOrder) {
  for (const int n : {1, 3})
    for (const std::int64_t stop_after : {std::int64_t{7}, std::int64_t{100}}) {
      const MemoryOfTest memory;
      const Config config = memory.run("run");
      const std::string said = train_by(n, config, stop_after)[0]->messages;
      EXPECT_NE(said.find("checkpoint.memory_every: all ranks are on one host, "), std::string::npos) << said;
      EXPECT_TRUE(fs::is_empty(memory.root)) << n << ' ' << stop_after;
      EXPECT_FALSE(fs::exists(RunFolder(config.run).memory_session()));
    }
}

TEST(RunMemory, OfOneHostIsSaidByTheFirstRankToEndWithIt) {
  for (const int n : {1, 2}) {
    const MemoryOfTest memory;
    const auto told = train_by(n, memory.run("run", {"steps=4", "model.layers=1"}));
    for (int rank = 0; rank < n; ++rank) {
      const std::string& said = told[static_cast<std::size_t>(rank)]->messages;
      const std::string note =
          concat("checkpoint.memory_every: all ranks are on one host, ", host_name(), ':', memory.root,
                 ", so what is copied into its memory survives processes, but not the host\n");
      EXPECT_EQ(said.find(note) != std::string::npos, rank == 0) << rank << " of " << n << ": " << said;
    }
  }
}

// Leaves in the midst of the run, without a word.
class Leaving : public Recorder {
 public:
  bool stop_requested() override {
    if (++asked_ == 9) throw Error("gone");
    return false;
  }

 private:
  int asked_ = 0;
};

TEST(RunMemory, StaysWhereARankIsGoneAndNobodyCanSave) {
  const MemoryOfTest memory;
  const Config config = memory.run("run");
  const std::string failure = error_of([&] {
    run_ranks(2, [&](Communicator& ranks) {
      Recorder staying;
      Leaving leaving;
      train(config, ranks.rank() == 0 ? staying : leaving, ranks);
    });
  });
  EXPECT_EQ(failure, "gone");
  EXPECT_TRUE(RunFolder(config.run).checkpoint_steps().empty());
  const std::string said = train_by(2, memory.run("run", {"resume=auto"}))[0]->messages;
  EXPECT_NE(said.find("goes on after step 6 from "), std::string::npos) << said;
}

// What memory has may be as bad as what ends the run.
TEST(RunMemory, IsEmptyWhereTheLossIsNotFinite) {
  for (const int n : {1, 2}) {
    const MemoryOfTest memory;
    const Config config = memory.run("run", {"optimizer.lr=1e30", "clip=0", "checkpoint.memory_every=1"});
    EXPECT_NE(error_of([&] { train_by(n, config); }), "");
    EXPECT_TRUE(fs::is_empty(memory.root)) << n;
  }
}

TEST(RunMemory, IsNotLookedAtWhereACheckpointIsNamedOrTheRunBeginsAnew) {
  const MemoryOfTest memory;
  train_by(1, memory.run("other"));
  const Config config = memory.run("run");
  train_and_die(1, config);
  EXPECT_FALSE(fs::is_empty(memory.root));
  const std::string from = RunFolder(memory.place / "other").checkpoint(12);
  const std::string said = train_by(1, memory.run("run", {"steps=13", "resume=" + from}))[0]->messages;
  EXPECT_NE(said.find("goes on after step 12 from " + from + "\n"), std::string::npos) << said;
  EXPECT_TRUE(fs::is_empty(memory.root)) << "its copies count for nothing any more";
}

TEST(RunMemory, TakesWhatThePlanSays) {
  const MemoryOfTest memory;
  for (const char* strategy : {"ddp-fp32", "zero3-bf16"})
    for (const int n : {1, 3}) {
      const std::vector<std::string> more = {concat("strategy=", strategy)};
      const Config config = memory.run(concat(strategy, n), more);
      train_and_die(n, config);
      const auto made = model_spec(config, 40)->make_decoder();
      CausalModel& model = *made;
      std::int64_t planned = 0;  // of the copies of steps 3 and 6
      for (int rank = 0; rank < n; ++rank) planned += 2 * planned_files(config, model, n, rank);
      const auto counted = static_cast<std::int64_t>(memory.bytes());
      // A file has a head of a page or two.
      EXPECT_GE(counted, planned);
      EXPECT_LE(counted, planned + n * 4 * (16 << 10));
      EXPECT_EQ(plan_run(config, *planned_model(config), n).memory.copies,
                2 * (planned_files(config, model, n, 0) + (n > 1 ? planned_files(config, model, n, 1) : 0)));
      fs::remove_all(memory.root);
      fs::create_directory(memory.root);
    }
}

TEST(RunMemory, IsPartOfWhatARunIsRefusedFor) {
  const MemoryOfTest memory;
  const Config config = memory.run("run");
  run_ranks(3, [&](Communicator& ranks) {
    const Context context = Context::create({.threads = 1});
    const auto made = model_spec(config, 40)->make_decoder();
    CausalModel& model = *made;
    const MemoryPlan plan = plan_run(config, *planned_model(config), 3, true).memory;
    std::int64_t copies = 0;
    for (int rank = 0; rank < 3; ++rank) copies += 2 * planned_files(config, model, 3, rank);
    const std::int64_t all = 3 * (plan.kept() + plan.buckets) + copies;
    const auto refusal = [&](const Config& asked, std::int64_t bytes) {
      return error_of([&] { check_memory(asked, model, ranks, context, {.machine = {bytes, true}, .device = {}}); });
    };
    EXPECT_EQ(refusal(config, all), "");
    const std::string message = refusal(config, all - 1);
    EXPECT_NE(message.find(" of copies in memory for checkpoint.memory_every"), std::string::npos) << message;
    EXPECT_NE(refusal(config, copies / 2), "");
    Config without = config;
    without.checkpoint.memory_every = 0;
    EXPECT_EQ(refusal(without, all - copies), "");
  });
}

}  // namespace
}  // namespace keel
