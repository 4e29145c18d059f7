// Rank 1 of four dies, stops, exits or throws in the middle of a backward pass: what the others say, how soon all end,
// and that nothing is left.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/cli/mpi/processes.h"
#include "tests/cli/sandbox.h"
#include "tests/pattern.h"

namespace keel::cli {
namespace {

using testing::first_match;
using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

constexpr const char* kStages[] = {"ddp", "zero2", "zero3"};
// Small buckets, so that a backward pass has several.
constexpr const char* kRun =
    " text.yaml run=made model.layers=2 steps=100000 sharding.bucket=0.01 sharding.first_bucket=0.01 "
    "checkpoint.every=0 eval.every=0 strategy=";

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// What all survivors must have said, by their logs or on the standard error, about rank 1, which fails in step 4 as it
// begins its second sum. Where gradients are sharded it has the first one by then, with a part of every rank, so that
// all are in step 4. Under ddp the second sum leaves before the first one is there, and no rank need be in step 4: one
// that has not come back from the last collective of step 3 by then fails there.
void expect_messages(const Sandbox& sandbox, const Outcome& outcome, std::string_view stage) {
  const std::string_view step = stage == "ddp" ? "step [34]" : "step 4";
  for (const int rank : {0, 2, 3}) {
    const std::string log = concat("made/logs/rank-", rank, ".log");
    const std::string said = outcome.err + (sandbox.has(log) ? sandbox.read(log) : "");
    const std::string own = concat("rank ", rank, " (waits in|was in|was before|gave up after 2000 ms in) ");
    EXPECT_FALSE(first_match(said, concat(own, ".*\\(collective number [0-9]+, ", step, "\\)")).empty()) << said;
    EXPECT_FALSE(first_match(said, "rank 1 |from rank 1|from ranks [0-9, ]*1").empty()) << said;
  }
}

// Why there are no processes to test with; empty where there are.
std::string why_not() {
#ifdef KEEL_HAVE_MPI
  return testing::run_keel("launch -N 2 true").err;
#else
  return "this build has no MPI";
#endif
}

class MpiFault : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

// A training of one stage with a fault.
struct FaultyRun {
  Sandbox sandbox;
  Outcome outcome = {};
  std::int64_t took = 0;  // milliseconds from the fault to the end of all processes
  std::string left = {};  // processes

  void operator()(const std::string& fault, const char* stage, std::int64_t most) {
    const std::string timeout = fault == "stopped" ? " --timeout 2" : "";
    outcome = sandbox.start(concat("launch -N 4", timeout, " '", KEEL_FAULT_PROGRAM, "' ", fault, " 1 0", kRun, stage))
                  .wait();
    if (!sandbox.has("fault")) return;
    const std::int64_t began = std::atoll(sandbox.read("fault").c_str());
    do {
      left = testing::processes_in(sandbox / "");
      took = now_ms() - began;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (!left.empty() && took < most);
  }
};

TEST_P(MpiFault, EndsAllRanksSoonWithRankStepAndCollective) {
  const std::string fault = GetParam();
  const std::int64_t most = fault == "stopped" ? 7'000 : 5'000;
  std::array<FaultyRun, std::size(kStages)> runs;
  {
    // At a time, as most of it is waiting for launchers.
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < runs.size(); ++i) threads.emplace_back([&, i] { runs[i](fault, kStages[i], most); });
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(kStages[i]);
    const Outcome& outcome = runs[i].outcome;
    ASSERT_TRUE(runs[i].sandbox.has("fault")) << outcome.err;
    EXPECT_LE(runs[i].took, most);
    EXPECT_EQ(runs[i].left, "");
    EXPECT_NE(outcome.code, 0);
    expect_messages(runs[i].sandbox, outcome, kStages[i]);
    if (fault == "killed") {
      EXPECT_EQ(outcome.code, 128 + SIGKILL);
      EXPECT_NE(outcome.err.find("keel: error: rank 1 was killed by signal 9"), std::string::npos) << outcome.err;
    }
    if (fault == "throws") {
      EXPECT_TRUE(outcome.err.starts_with("keel: error: rank 1: the sky is falling (unexpected; please report this)\n"))
          << outcome.err;
    }
    if (fault == "out_of_memory") {
      EXPECT_TRUE(outcome.err.starts_with("keel: error: rank 1: out of memory; a smaller batch.micro needs less\n"))
          << outcome.err;
    }
    if (fault == "exits") {
      EXPECT_TRUE(
          outcome.err.starts_with("keel: error: rank 1: the process was about to exit in the midst of the run\n"))
          << outcome.err;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MpiFault,
                         ::testing::Values("killed", "stopped", "exits", "exits_at_once", "throws", "out_of_memory"),
                         [](const auto& info) { return std::string(info.param); });

class ThreadFault : public ::testing::TestWithParam<const char*> {};

TEST_P(ThreadFault, EndsAllRanksSoonWithRankStepAndCollective) {
  const std::string fault = GetParam();
  for (const char* stage : kStages) {
    SCOPED_TRACE(stage);
    const Sandbox sandbox;
    const std::string command =
        concat("cd '", sandbox / "", "' && '", KEEL_FAULT_PROGRAM, "' ", fault, " 1 4", kRun, stage, " >out 2>err");
    const int status = std::system(command.c_str());
    ASSERT_TRUE(sandbox.has("fault")) << sandbox.read("err");
    EXPECT_LE(now_ms() - std::atoll(sandbox.read("fault").c_str()), 5'000);
    const Outcome outcome = {WEXITSTATUS(status), "", sandbox.read("err")};
    EXPECT_NE(outcome.code, 0);
    EXPECT_TRUE(outcome.err.starts_with("keel: error: rank 1: ")) << outcome.err;
    if (fault != "exits") expect_messages(sandbox, outcome, stage);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ThreadFault, ::testing::Values("exits", "throws", "out_of_memory"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Timeout, ThatIsNoNumberOfSecondsIsNamed) {
  const Sandbox sandbox;
  for (const char* bad : {"never", "0", "5s", "nan"}) {
    const Outcome threads = sandbox.keel("launch -N 2 --threads text.yaml", concat("export KEEL_TIMEOUT=", bad));
    EXPECT_EQ(threads.code, 2);
    EXPECT_EQ(threads.err,
              concat("keel: error: KEEL_TIMEOUT expects seconds, between 0.001 and 1000000; got '", bad, "'\n"));
    const Outcome launch = sandbox.keel(concat("launch -N 2 --threads --timeout=", bad, " text.yaml"));
    EXPECT_EQ(launch.code, 2);
    EXPECT_TRUE(launch.err.starts_with("keel: error: --timeout expects seconds, ")) << launch.err;
  }
}

TEST(Timeout, ThatIsNoNumberIsSaidOnceByProcesses) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("launch -N 4 text.yaml", "export KEEL_TIMEOUT=never");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "keel: error: KEEL_TIMEOUT expects seconds, between 0.001 and 1000000; got 'never'\n");
}

}  // namespace
}  // namespace keel::cli
