// `keel launch` and `keel strats` as far as they need no MPI.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "cli/started_ranks.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::run_keel;
using testing::RunningProgram;
using testing::Sandbox;

void expect_refused(const Outcome& outcome, const std::string& reason) {
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
}

TEST(Launch, RanksAsThreadsTrainToTheSameBitsInEveryStage) {
  const Sandbox sandbox;
  for (const std::string stage : {"ddp", "zero3"}) {
    const Outcome outcome =
        sandbox.keel("launch -N 3 --threads --strat " + stage + "-bf16 text.yaml batch.global=6 run=" + stage);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out.find("step 12/12"), outcome.out.rfind("step 12/12")) << "one rank prints: " << outcome.out;
    for (const char* rank : {"0", "1", "2"}) EXPECT_TRUE(sandbox.has(stage + "/logs/rank-" + rank + ".log"));
  }
  EXPECT_EQ(sandbox.read("ddp/model.safetensors"), sandbox.read("zero3/model.safetensors"));
}

TEST(Launch, AnErrorOfRanksThatAreThreadsIsSaidOnce) {
  const Sandbox sandbox;
  expect_refused(sandbox.keel("launch -N 3 --threads text.yaml threads=0 stepps=3"), "did you mean 'steps'?");
  expect_refused(sandbox.keel("launch -N 3 --threads text.yaml threads=0 data.path=absent"), "'absent'");
  EXPECT_FALSE(sandbox.has("runs"));
}

TEST(Launch, TheCommandsOfOtherTrainersAreRead) {
  for (const char* arguments :
       {"-N=8 --strat=deepspeed-2-bf16", "-N 8 --strat deepspeed-2-bf16", "-N8 --strat deepspeed-2-bf16"}) {
    const Outcome outcome = run_keel(concat("launch ", arguments, " --threads --dry-run c.yaml steps=5"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(" train --thread-ranks 8 c.yaml strategy=deepspeed-2-bf16 steps=5\n"), std::string::npos)
        << outcome.out;
  }
}

// --print-config and --delay are of `keel train`.
TEST(Launch, OptionsMayStandBehindTheConfiguration) {
  const Outcome before = run_keel("launch -N 8 --strat zero1-bf16 --threads --dry-run c.yaml steps=5 --delay 9 -- --x");
  EXPECT_NE(before.out.find(" train --thread-ranks 8 c.yaml strategy=zero1-bf16 steps=5 --delay 9 -- --x\n"),
            std::string::npos)
      << before.out << before.err;
  for (const char* behind : {"c.yaml -N 8 steps=5 --threads --delay 9 --strat zero1-bf16 --dry-run -- --x",
                             "train c.yaml -N=8 --threads steps=5 --strat=zero1-bf16 --delay 9 --dry-run -- --x"})
    EXPECT_EQ(run_keel(concat("launch ", behind)).out, before.out);
  const Outcome nothing = run_keel("launch -N 2 --threads train");
  EXPECT_EQ(nothing.err, "keel: error: what shall the ranks train? `keel launch -N 4 train c.yaml`\n");
}

// As one comes that was sent before the program had a handler for it.
TEST(Launch, ASignalThatWaitsForTheProgramStopsItInOrder) {
  const Sandbox sandbox;
  sigset_t warning, before;
  sigemptyset(&warning);
  sigaddset(&warning, SIGUSR1);
  for (const std::string command :
       {"train text.yaml run=alone", "launch -N 1 text.yaml run=one", "launch -N 2 --threads text.yaml run=threads",
        "comm all_reduce --threads -N 2 -b 64 -e 64"}) {
    ::pthread_sigmask(SIG_BLOCK, &warning, &before);
    RunningProgram program = sandbox.start(command);
    program.send(SIGUSR1);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 128 + SIGTERM) << command << ": " << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("stopped by "), std::string::npos) << command << ": " << outcome.out;
  }
}

TEST(Launch, RanksTellTheLauncherWhetherItEndedThem) {
  StartedRanks launcher(3);
  ::setenv(StartedRanks::kVariable, launcher.address().c_str(), 1);
  StartedRank first, second, third;
  for (StartedRank* rank : {&first, &second, &third}) rank->tell_that_it_started();
  launcher.wait(::getpid());  // not for ever
  EXPECT_FALSE(launcher.were_terminated());
  first.tell_that_it_was_terminated();
  EXPECT_TRUE(launcher.were_terminated());
  second.tell_that_it_failed();
  third.tell_that_it_was_terminated();
  EXPECT_FALSE(launcher.were_terminated());
  ::unsetenv(StartedRanks::kVariable);
  StartedRank nobodys;
  nobodys.tell_that_it_started();
  nobodys.tell_that_it_failed();
}

TEST(Launch, RanksThatWereLeftBehindAreKilled) {
  StartedRanks launcher(2);
  ::setenv(StartedRanks::kVariable, launcher.address().c_str(), 1);
  const auto start_rank = [](bool ends) {
    const pid_t rank = ::fork();
    if (rank != 0) return rank;
    StartedRank self;
    self.tell_that_it_started();
    while (!ends) ::pause();
    ::_exit(3);
  };
  int status = 0;
  ::waitpid(start_rank(true), &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  const pid_t left = start_rank(false);
  launcher.wait(::getpid());
  launcher.kill_those_left();
  ::waitpid(left, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ::unsetenv(StartedRanks::kVariable);
}

TEST(Launch, WhatFollowsTheProgramIsItsOwn) {
  const Outcome outcome = run_keel("launch -N 1 --dry-run sh -c 'exit 3' -N 2 --threads train");
  EXPECT_TRUE(outcome.out.ends_with("sh -c 'exit 3' -N 2 --threads train\n")) << outcome.out << outcome.err;
  EXPECT_EQ(run_keel("launch -N 1 sh -c 'exit 3'").code, 3);
}

TEST(Launch, BadRequestsAreOneClearLine) {
  expect_refused(run_keel("launch -N 4"), "what shall the ranks run?");
  expect_refused(run_keel("launch -N x c.yaml"), "-N expects a number of ranks");
  expect_refused(run_keel("launch -N 4 --strat zero9 c.yaml"), "got 'zero9'");
  expect_refused(run_keel("launch -N 4 --strat fsdp-fp8 c.yaml"),
                 "--strat fsdp-fp8: training does not offer fp8 yet; use bf16");
  expect_refused(run_keel("launch -N 4 --hosts a:1 --hostfile f c.yaml"), "not both");
  expect_refused(run_keel("launch -N 4 --hostfile absent c.yaml"), "'absent'");
  expect_refused(run_keel("launch -N 4 --launcher absent c.yaml"), "no launcher 'absent'");
  const Outcome without = run_keel("launch -N 4 c.yaml", ".", "export PATH=/nonexistent");
  expect_refused(without, "--threads runs the ranks as threads of one process");
  EXPECT_NE(without.err.find("apt-get install"), std::string::npos) << without.err;
}

TEST(Launch, MoreThreadsThanProcessorsIsAWarning) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("train addition.yaml run=made threads=4000 steps=1 --thread-ranks 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("4000 threads share "), std::string::npos) << outcome.out;
  EXPECT_EQ(sandbox.keel("train addition.yaml run=fits threads=1 steps=1").out.find("threads share"),
            std::string::npos);
}

TEST(Strats, ListsTheGrammarAndFifteenNames) {
  const Outcome outcome = run_keel("strats");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with(
      "strategy = [ddp-|zero1-|zero2-|zero3-]{auto|fp32|bf16|fp16}[-{none|cpu|nvme}[-{none|cpu|nvme}]]\n"));
  const std::size_t begin = outcome.out.find("\n\nauto ") + 2, end = outcome.out.find("\n\n", begin);
  EXPECT_EQ(std::count(outcome.out.begin() + static_cast<std::ptrdiff_t>(begin),
                       outcome.out.begin() + static_cast<std::ptrdiff_t>(end) + 1, '\n'),
            15)
      << outcome.out;
}

TEST(Strats, AllListsEveryNameWithItsMeaningOrWhatItWaitsFor) {
  const Outcome outcome = run_keel("strats --all");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("\ndeepspeed-2-bf16-cpu-none "), std::string::npos);
  EXPECT_NE(outcome.out.find("zero3-bf16-nvme-nvme: parameters, gradients and optimizer state sharded; bf16 with fp32 "
                             "master weights; optimizer state in files; parameters in files\n"),
            std::string::npos);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (line.find("not there yet") != std::string::npos) { EXPECT_NE(line.find("fp8"), std::string::npos) << line; }
  EXPECT_GT(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 107 + 15);
}

}  // namespace
}  // namespace keel::cli
