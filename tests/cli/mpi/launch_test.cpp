// `keel launch` with the launcher of this machine: four ranks, as root or not, on however few processors there are.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/cli/mpi/processes.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

constexpr const char* kForEver = " steps=1000000 checkpoint.every=0 eval.every=0 log.every=1";

class MpiLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string probe = testing::run_keel("launch -N 2 true").err;
    if (!probe.empty()) GTEST_SKIP() << probe;
  }

  // Until the run has trained a step.
  void wait_for_steps() const {
    for (int i = 0; i < 6000 && !(sandbox.has("made/metrics.jsonl") && sandbox.read("made/metrics.jsonl") != ""); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  // Those that run in the sandbox, the launcher's included.
  std::string processes() const { return testing::processes_in(sandbox / ""); }
  std::string processes_left() const { return testing::processes_left_in(sandbox / ""); }

  void write_program(const std::string& name, const std::string& text) const {
    sandbox.write(name, "#!/bin/sh\n" + text);
    std::filesystem::permissions(sandbox / name, std::filesystem::perms::owner_all);
  }

  // A process of the sandbox whose program has that name.
  std::string process_named(const std::string& name) const {
    std::istringstream list(processes());
    for (std::string id; std::getline(list, id);)
      if (testing::text_of(concat("/proc/", id, "/comm")) == name + "\n") return id;
    return "";
  }

  const Sandbox sandbox;
};

std::int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Processes, WhoseFilesCannotBeReadHaveNoText) {
  EXPECT_EQ(testing::text_of("/proc/self/mem"), "");  // as of one that has ended since the file was opened
  EXPECT_NE(testing::text_of("/proc/self/status"), "");
}

TEST_F(MpiLaunch, TrainsByFourRanksToTheBitsOfFourThreadsWithNothingOnTheStandardError) {
  const Outcome outcome = sandbox.keel("launch -N 4 --strat zero2-bf16 text.yaml run=made");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(lines_of(outcome.out), 7) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "no terminal, no drawing: " << outcome.out;
  for (const char* rank : {"0", "1", "2", "3"}) EXPECT_TRUE(sandbox.has(concat("made/logs/rank-", rank, ".log")));
  ASSERT_EQ(sandbox.keel("launch -N 4 --threads --strat zero2-bf16 text.yaml run=threads").code, 0);
  EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("threads/model.safetensors"));
}

TEST_F(MpiLaunch, GivesAProgramItsArgumentsThreadsAndExitCode) {
  sandbox.write("program", "echo \"$OMP_NUM_THREADS $1,$2\"\nexit 7\n");
  const Outcome outcome = sandbox.keel("launch -N 4 sh program 'one two' --steps=3", "export OMP_NUM_THREADS=5");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find('\n')), "5 one two,--steps=3") << outcome.out;
}

TEST_F(MpiLaunch, BindsEachRankToACoreOfItsOwnWhereAsked) {
  const auto processors_of_ranks = [&](const char* place) {
    const Outcome outcome =
        sandbox.keel(concat("launch -N 2 --bind-to ", place, " grep Cpus_allowed_list /proc/self/status"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    std::set<std::string> found;
    for (std::string line; std::getline(lines, line);) found.insert(line);
    return found.size();
  };
  EXPECT_EQ(processors_of_ranks("none"), 1u) << "all of them";
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor has no core for each of two ranks";
  EXPECT_EQ(processors_of_ranks("core"), 2u);
}

TEST_F(MpiLaunch, AnErrorIsSaidOnce) {
  for (const std::string mistake : {"stepps=3", "data.path=absent", "batch.global=3"}) {
    const Outcome outcome = sandbox.keel("launch -N 4 text.yaml run=made " + mistake);
    EXPECT_EQ(outcome.code, 2) << mistake;
    EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err), 1) << outcome.err;
  }
  const Outcome not_finite = sandbox.keel("launch -N 4 text.yaml run=made optimizer.lr=1e30 clip=0");
  EXPECT_EQ(not_finite.code, 3);
  EXPECT_EQ(lines_of(not_finite.err), 1) << not_finite.err;
  const Outcome missing = sandbox.keel("launch -N 4 ./missing");
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.err, "keel: error: cannot start './missing': there is no such file\n");
  const Outcome threads = sandbox.keel("launch -N 2 text.yaml run=made", "export OMP_NUM_THREADS=abc");
  EXPECT_EQ(threads.code, 2);
  EXPECT_TRUE(threads.err.ends_with(  // libgomp may speak first
      "keel: error: OMP_NUM_THREADS is 'abc'; a number of threads, from 1 to 4096, is expected there\n"))
      << threads.err;
  const Outcome nowhere = sandbox.keel("launch -N 4 text.yaml run=nowhere", "export TMPDIR=$PWD/absent");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_EQ(nowhere.err,
            concat("keel: error: TMPDIR is '", sandbox / "absent",
                   "', where the launcher cannot write (No such file or directory); name another folder, or none for "
                   "/tmp\n"));
  EXPECT_FALSE(sandbox.has("absent"));
}

TEST_F(MpiLaunch, ASignalBeforeTheRanksHaveStartedIsNotLost) {
  for (const int number : {SIGINT, SIGTERM})
    for (const int milliseconds : {50, 300}) {
      std::filesystem::remove_all(sandbox / "made");
      RunningProgram program = sandbox.start(concat("launch -N 4 text.yaml run=made", kForEver));
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      program.send(number);
      const Outcome stopped = program.wait();
      EXPECT_EQ(stopped.code, 128 + number) << milliseconds << " ms: " << stopped.err;
      EXPECT_EQ(processes_left(), "");
    }
}

TEST_F(MpiLaunch, ASignalWhileTheLauncherIsLookedForIsNotLost) {
  write_program("mpirun", "[ \"$1\" != --version ] || kill -USR1 $PPID\nexec mpirun \"$@\"\n");
  const Outcome stopped = sandbox.keel(concat("launch -N 2 --launcher ./mpirun text.yaml run=made", kForEver));
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  EXPECT_NE(stopped.out.find("stopped by SIGTERM"), std::string::npos) << stopped.out;
  EXPECT_EQ(processes_left(), "");
}

TEST_F(MpiLaunch, ALauncherThatIsTerminatedGivesTheCodeOfThat) {
  RunningProgram program = sandbox.start(concat("launch -N 3 text.yaml batch.global=6 run=made", kForEver));
  wait_for_steps();
  const std::string launcher = process_named("mpirun");
  ASSERT_NE(launcher, "");
  ::kill(std::stoi(launcher), SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  EXPECT_EQ(processes_left(), "");
}

// As one does whose ranks wait at their end for one that is no longer there.
TEST_F(MpiLaunch, TwoInterruptsEndALauncherThatHangsAndItsRanks) {
  write_program("mpirun",
                "[ \"$1\" != --version ] || exec mpirun --version\n"
                "trap '' INT TERM HUP USR1 USR2\n"
                "while [ \"$2\" != launch ]; do shift; done\n"
                "\"$@\" &\n\"$@\" &\n"
                "while :; do sleep 1; done\n");
  RunningProgram program = sandbox.start("launch -N 2 --launcher ./mpirun sleep 1000");
  while (process_named("sleep") == "") std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.send(SIGINT);
  EXPECT_EQ(program.wait().code, 128 + SIGINT);
  EXPECT_EQ(processes_left(), "");
}

TEST_F(MpiLaunch, LeavesNothingBehindHoweverItEnds) {
  for (const int number : {SIGTERM, SIGKILL}) {
    std::filesystem::remove_all(sandbox / "made");
    std::filesystem::remove_all(sandbox / "tmp");
    std::filesystem::create_directory(sandbox / "tmp");
    RunningProgram program(concat("launch -N 2 text.yaml run=made", kForEver), sandbox / "", "export TMPDIR=$PWD/tmp");
    wait_for_steps();
    program.send(number);
    EXPECT_EQ(program.wait().code, 128 + number);
    EXPECT_EQ(processes_left(), "");
    for (const auto& entry : std::filesystem::directory_iterator(sandbox / "tmp"))
      EXPECT_EQ(entry.path().filename().string().find("keel"), std::string::npos) << entry.path();
  }
}

TEST_F(MpiLaunch, SignalsReachTheRanksWhichSaveAndGoOn) {
  for (const int number : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(sandbox / "made");
    RunningProgram program = sandbox.start(concat("launch -N 4 --strat zero3-fp32 text.yaml run=made", kForEver));
    wait_for_steps();
    program.send(number);
    const Outcome stopped = program.wait();
    EXPECT_EQ(stopped.code, 128 + number) << stopped.err;
    EXPECT_EQ(stopped.err, "");
    EXPECT_TRUE(stopped.out.ends_with(concat("stopped by ", number == SIGINT ? "Ctrl-C" : "SIGTERM",
                                             "; to go on: keel launch -N 4 made/config.yaml resume=auto\n")))
        << stopped.out;
    EXPECT_TRUE(sandbox.has("made/model.safetensors"));
    EXPECT_EQ(processes_left(), "");
  }
}

// As job systems warn: the launcher, or one of the ranks alone.
// Acceptance check 28.
TEST_F(MpiLaunch, AWarningBeforeTheTimeIsOverStopsAllRanksAfterTheSameStep) {
  for (const bool of_one_rank : {false, true}) {
    std::filesystem::remove_all(sandbox / "made");
    RunningProgram program = sandbox.start(concat("launch -N 3 text.yaml batch.global=6 run=made", kForEver));
    wait_for_steps();
    if (of_one_rank) ::kill(testing::process_of_rank(1, sandbox / ""), SIGUSR1);
    else program.send(SIGUSR1);
    const Outcome stopped = program.wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
    EXPECT_EQ(stopped.err, "");
    EXPECT_TRUE(stopped.out.ends_with("stopped by SIGTERM; to go on: keel launch -N 3 made/config.yaml resume=auto\n"))
        << stopped.out;
    EXPECT_TRUE(sandbox.has("made/model.safetensors"));
  }
}

TEST_F(MpiLaunch, NamesARankThatIsKilledAndLeavesNoOrphan) {
  RunningProgram program = sandbox.start(concat("launch -N 4 text.yaml run=made", kForEver));
  wait_for_steps();
  const pid_t killed = testing::process_of_rank(2, sandbox / "");
  ASSERT_NE(killed, 0);
  ::kill(killed, SIGKILL);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_TRUE(outcome.err.starts_with(concat("keel: error: rank 2 was killed by signal 9 (Killed; process ", killed)))
      << outcome.err;
  EXPECT_EQ(processes_left(), "");
}

TEST_F(MpiLaunch, RanksStartedByTheLauncherItselfWorkToo) {
  const std::string command = concat(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 3 '",
      KEEL_PROGRAM, "' train text.yaml batch.global=6 run=made strategy=zero1-fp32 >out 2>&1");
  ASSERT_EQ(std::system(concat("cd '", sandbox / "", "' && ", command).c_str()), 0) << sandbox.read("out");
  ASSERT_EQ(sandbox.keel("launch -N 3 --threads text.yaml batch.global=6 run=threads strategy=zero3-fp32").code, 0);
  EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("threads/model.safetensors"));
}

TEST_F(MpiLaunch, RanksThatDoNotFindEachOtherAreAnErrorAndNotSeveralRuns) {
  // What a launcher of another MPI leaves behind.
  const Outcome first = sandbox.keel("train text.yaml run=made", "export PMI_RANK=0 PMI_SIZE=4");
  EXPECT_EQ(first.code, 2);
  EXPECT_NE(first.err.find("this is rank 0 of 4 for the launcher"), std::string::npos) << first.err;
  const Outcome second = sandbox.keel("train text.yaml run=made", "export PMI_RANK=1 PMI_SIZE=4");
  EXPECT_EQ(second.err, "");
  EXPECT_FALSE(sandbox.has("made"));
}

}  // namespace
}  // namespace keel::cli
