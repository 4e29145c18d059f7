// `keel launch --tcp`: ranks that keel starts itself, without MPI.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keel/trainer/metrics.h"
#include "tests/cli/mpi/processes.h"
#include "tests/cli/sandbox.h"
#include "tests/cli/silent_file.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

constexpr const char* kEndlessRun = "text.yaml run=made steps=1000000 checkpoint.every=0 eval.every=0 log.every=1";

class TcpLaunch : public ::testing::Test {
 protected:
  // Calls f until it is true; false after half a minute.
  template <class F>
  static bool soon(const F& f) {
    for (int i = 0; i < 6000; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  void wait_for_steps() const {
    soon([&] { return sandbox.has("made/metrics.jsonl") && sandbox.read("made/metrics.jsonl") != ""; });
  }
  // What a launch says, which ends well though a rank of it is killed once it trains.
  Outcome end_without(int victim, const std::string& arguments) const {
    RunningProgram program = sandbox.start(arguments);
    wait_for_steps();
    const pid_t rank = testing::process_of_rank(victim, sandbox / "");
    EXPECT_NE(rank, 0);
    if (rank != 0) ::kill(rank, SIGKILL);
    Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  std::string processes_left() const { return testing::processes_left_in(sandbox / ""); }

  const Sandbox sandbox;
};

TEST_F(TcpLaunch, TrainsToTheBitsOfThreadsWithNothingOnTheStandardError) {
  const Outcome outcome = sandbox.keel("launch -N 3 --tcp --strat zero2-bf16 text.yaml batch.global=6 run=made");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 7) << "one rank prints: " << outcome.out;
  ASSERT_EQ(sandbox.keel("launch -N 3 --threads --strat zero2-bf16 text.yaml batch.global=6 run=threads").code, 0);
  EXPECT_EQ(sandbox.read("made/model.safetensors"), sandbox.read("threads/model.safetensors"));
}

TEST_F(TcpLaunch, GivesAProgramItsArgumentsItsRankAndAnEmptyInput) {
  const Outcome outcome = sandbox.keel("launch -N 3 --tcp sh -c 'echo $KEEL_RANK/$KEEL_SIZE \"$1\"; cat' x 'one two'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) found.insert(line);
  EXPECT_EQ(found, (std::set<std::string>{"0/3 one two", "1/3 one two", "2/3 one two"}));
}

TEST_F(TcpLaunch, ARankThatFailsEndsTheOthersAndItsCodeIsThatOfAll) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = sandbox.keel("launch -N 3 --tcp sh -c '[ $KEEL_RANK != 1 ] || exit 7; sleep 1000'");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_LE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(processes_left(), "");
}

TEST_F(TcpLaunch, WithKeepGoingTheOthersGoOnAndItsCodeIsThatOfWhoEndsWell) {
  const Outcome outcome = sandbox.keel(
      "launch -N 3 --tcp --keep-going sh -c '[ $KEEL_RANK != 1 ] || exit 7; sleep 2; touch done-$KEEL_RANK'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* file : {"done-0", "done-2"}) EXPECT_TRUE(sandbox.has(file));
  EXPECT_EQ(sandbox.keel("launch -N 2 --tcp --keep-going sh -c 'exit 7'").code, 7);
  EXPECT_NE(sandbox.keel("launch -N 2 --threads --keep-going text.yaml").code, 0) << "threads end together";
}

// The group of the first rank, too, of which another one takes over what it writes.
TEST_F(TcpLaunch, AGroupOfARankThatIsKilledIsDropped) {
  for (const int victim : {2, 0}) {
    std::filesystem::remove_all(sandbox / "made");
    const Outcome outcome = end_without(
        victim,
        "launch -N 3 --tcp --keep-going text.yaml run=made batch.global=6 steps=400 checkpoint.every=0 eval.every=0 "
        "log.every=1 sharding.group=1 outer.type=diloco outer.every=5 outer.on_failure=drop");
    const std::string metrics = sandbox.read("made/metrics.jsonl");
    EXPECT_NE(metrics.find(concat("\"dropped_group\":", victim, ",\"groups\":2")), std::string::npos);
    EXPECT_NE(metrics.find("{\"step\":400,\"loss\":"), std::string::npos);
    EXPECT_TRUE(sandbox.has("made/model.safetensors"));
    EXPECT_NE(
        sandbox.read(concat("made/logs/rank-", victim == 0 ? 1 : 0, ".log")).find(concat("group ", victim, " (rank")),
        std::string::npos);
    std::vector<std::int64_t> steps, all;
    for (const Json& record : read_metrics(sandbox / "made/metrics.jsonl"))
      if (record.contains("loss")) steps.push_back(record.at("step").integer());
    for (std::int64_t step = 1; step <= 400; ++step) all.push_back(step);
    EXPECT_EQ(steps, all) << "none is missing, and none is there twice";
    const std::string line = concat(": group ", victim, " (rank ", victim, ") is gone and was dropped");
    for (const std::string& shown : {line, std::string("step 400/400  loss"), std::string("memory: peak")}) {
      const std::size_t at = outcome.out.find(shown);
      ASSERT_NE(at, std::string::npos) << shown << " is not in " << outcome.out;
      EXPECT_EQ(outcome.out.find(shown, at + 1), std::string::npos) << outcome.out;
    }
    EXPECT_EQ(outcome.out.find("rank 1 takes over: ") != std::string::npos, victim == 0) << outcome.out;
    EXPECT_EQ(processes_left(), "");
  }
}

// With all that a run does beside training; what they have saved is gone on from, by all ranks.
TEST_F(TcpLaunch, AGroupThatIsDroppedDisturbsNeitherSavesNorTuningNorTheThread) {
  for (const int victim : {3, 0}) {
    SCOPED_TRACE(victim);
    std::filesystem::remove_all(sandbox / "made");
    const std::string run =
        "launch -N 4 --tcp --keep-going --strat zero2 text.yaml run=made batch.global=8 eval.every=0 log.every=1 "
        "sharding.group=2 outer.type=diloco outer.every=5 outer.on_failure=drop checkpoint.async=true "
        "checkpoint.every=10 checkpoint.memory_every=7 sharding.bucket=auto sharding.progress=thread ";
    const Outcome outcome = end_without(victim, run + "steps=300");
    const auto count = [&](const char* name) {
      const std::vector<Json> records = read_metrics(sandbox / "made/metrics.jsonl");
      return std::ranges::count_if(records, [&](const Json& record) { return record.contains(name); });
    };
    EXPECT_EQ(count("loss"), 300);
    EXPECT_EQ(count("dropped_group"), 1);
    EXPECT_EQ(count("tuned/algorithm"), 1);
    EXPECT_NE(outcome.out.find("step 300/300  loss"), std::string::npos) << outcome.out;
    const Outcome longer = sandbox.keel(run + "steps=310 resume=auto");
    EXPECT_EQ(longer.code, 0) << longer.err;
    EXPECT_EQ(count("loss"), 310);
    EXPECT_EQ(processes_left(), "");
  }
}

// The first group, too: whoever takes over what it writes saves what all begin with.
TEST_F(TcpLaunch, WithRejoinADroppedGroupComesBackAndNoStepIsMadeTwice) {
  // As where a host is lost: what stands around the rank dies, and the rank with it.
  for (const auto& each : {std::pair(2, false), std::pair(0, false), std::pair(2, true)}) {
    const int victim = each.first;
    const bool is_all = each.second;
    SCOPED_TRACE(concat(victim, is_all ? " and what stands around it" : ""));
    std::filesystem::remove_all(sandbox / "made");
    RunningProgram program = sandbox.start(
        "launch -N 3 --tcp --keep-going --rejoin 1 text.yaml run=made batch.global=6 steps=1000000 checkpoint.every=0 "
        "eval.every=0 log.every=1 sharding.group=1 outer.type=diloco outer.every=5 outer.on_failure=drop");
    wait_for_steps();
    const pid_t rank = testing::process_of_rank(victim, sandbox / "");
    ASSERT_NE(rank, 0);
    const pid_t killed = is_all ? testing::parent_of(rank) : rank;
    ASSERT_NE(killed, 0);
    ::kill(killed, SIGKILL);
    const auto last_step = [&] {
      std::int64_t last = 0;
      for (const Json& record : read_metrics(sandbox / "made/metrics.jsonl")) last = record.at("step").integer();
      return last;
    };
    const auto is_back = [&] {
      const pid_t now = testing::process_of_rank(victim, sandbox / "");
      return now != 0 && now != rank;
    };
    ASSERT_TRUE(soon(is_back));
    const std::int64_t before = last_step();
    ASSERT_TRUE(soon([&] { return last_step() > before + 5; }));
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
    EXPECT_NE(outcome.err.find("keel: what was left out answers again; 3 ranks go on from step "), std::string::npos)
        << outcome.err;
    EXPECT_NE(outcome.err.find(concat("keel: error: rank ", victim, is_all ? " is lost: what stands around it " : " ",
                                      "was killed by signal 9 (Killed; process ", killed, " on ")),
              std::string::npos)
        << outcome.err;
    std::int64_t last = 0, missing = 0, dropped = 0;
    for (const Json& record : read_metrics(sandbox / "made/metrics.jsonl")) {
      if (record.contains("dropped_group")) ++dropped;
      if (!record.contains("loss")) continue;
      const std::int64_t step = record.at("step").integer();
      EXPECT_GT(step, last);
      missing += step - last - 1;
      last = step;
    }
    EXPECT_EQ(dropped, 1);
    EXPECT_EQ(missing, 0) << "records that the first rank had not written when it died";
    EXPECT_EQ(processes_left(), "");
  }
}

TEST_F(TcpLaunch, OneThatDoesNotListenIsKilled) {
  const Outcome outcome =
      sandbox.keel("launch -N 2 --tcp sh -c '[ $KEEL_RANK = 1 ] || exit 5; trap \"\" TERM; exec sleep 1000'");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(processes_left(), "");
}

TEST_F(TcpLaunch, SignalsReachTheRanksWhichSaveAndGoOn) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    std::filesystem::remove_all(sandbox / "made");
    RunningProgram program = sandbox.start(concat("launch -N 2 --tcp ", kEndlessRun));
    wait_for_steps();
    program.send(number);
    const Outcome stopped = program.wait();
    EXPECT_EQ(stopped.code, 128 + (number == SIGUSR1 ? SIGTERM : number)) << stopped.err;
    EXPECT_EQ(stopped.err, "");
    EXPECT_TRUE(sandbox.has("made/model.safetensors"));
    EXPECT_EQ(processes_left(), "");
  }
}

// That the launcher reads, or the ranks, at first or later.
TEST_F(TcpLaunch, IsEndedBeforeTheFirstStepByTheFirstSignalThoughAFileDoesNotAnswer) {
  const std::string later = concat(kEndlessRun, " data.tokenizer=tokenizer.json");
  for (const auto& [file, arguments] : std::vector<std::pair<std::string, std::string>>{
           {"c.yaml", "c.yaml"}, {"settings", "train settings"}, {"tokenizer.json", later}})
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
      if (file == "c.yaml" && number == SIGUSR1) continue;  // which waits for the ranks
      SCOPED_TRACE(concat(file, ' ', number));
      std::filesystem::remove(sandbox / file);
      testing::SilentFile silent(sandbox / file);
      RunningProgram program = sandbox.start("launch -N 2 --tcp " + arguments);
      ASSERT_TRUE(silent.is_awaited());
      program.send(number);
      const Outcome ended = program.wait();
      EXPECT_EQ(ended.code, 128 + (number == SIGUSR1 ? SIGTERM : number));
      EXPECT_EQ(ended.err, "");
      EXPECT_EQ(processes_left(), "");
    }
}

TEST_F(TcpLaunch, NamesARankThatIsKilledAndLeavesNoOrphanHoweverItEnds) {
  for (const bool of_launcher : {false, true}) {
    std::filesystem::remove_all(sandbox / "made");
    RunningProgram program = sandbox.start(concat("launch -N 3 --tcp ", kEndlessRun, " batch.global=6"));
    wait_for_steps();
    const pid_t rank = testing::process_of_rank(2, sandbox / "");
    ASSERT_NE(rank, 0);
    if (of_launcher) program.send(SIGKILL);
    else ::kill(rank, SIGKILL);
    const Outcome outcome = program.wait();
    if (of_launcher) EXPECT_EQ(outcome.code, 128 + SIGKILL);
    else
      EXPECT_NE(outcome.err.find(concat("keel: error: rank 2 was killed by signal 9 (Killed; process ", rank, " on ")),
                std::string::npos)
          << outcome.err;
    EXPECT_NE(outcome.code, 0);
    EXPECT_EQ(processes_left(), "");
  }
}

}  // namespace
}  // namespace keel::cli
