// Ranks and hosts that are lost between two checkpoints, of runs that keep copies in the memory of hosts: what is lost
// with them, and where the run ends.

#include <iostream>

#include "tests/cli/mpi/elastic_run.h"

namespace keel::cli {
namespace {

constexpr int kCopiesEvery = 5;
constexpr const char* kSettings = "run.yaml steps=40 checkpoint.keep=100";

class ElasticMemory : public ElasticHosts {
 protected:
  // A checkpoint in the middle and at the end.
  static std::string more() {
    return concat(' ', kSettings, " checkpoint.every=20 checkpoint.memory_every=", kCopiesEvery, slow());
  }

  // After which step the run went on from memory, by the log of its first rank.
  static std::int64_t step_from_memory(const ElasticRun& run) {
    const std::string log = run.sandbox.read("made/logs/rank-0.log");
    std::smatch step;
    const std::regex line("goes on after step ([0-9]+) from made/checkpoints/step-[0-9]+, which was in the memory of ");
    const bool found = std::regex_search(log, step, line);
    EXPECT_TRUE(found) << log;
    return found ? std::stoll(step[1]) : 0;
  }

  // It lost no more than the steps since the copy, which has the bits of a checkpoint of that step, and ends with those
  // of a run that went on from one by as many ranks. Nothing is left in memory.
  static void expect_little_lost(const ElasticRun& run, std::int64_t last, int before, int after) {
    const std::int64_t step = step_from_memory(run);
    EXPECT_EQ(step % kCopiesEvery, 0);
    EXPECT_LE(last - step, kCopiesEvery);
    const std::string checkpoint = concat("checkpoints/step-", std::string(6, '0'), step < 10 ? "0" : "", step);
    const auto keel = [&](int ranks, const std::string& words) {
      const Outcome outcome = run.sandbox.keel(concat("launch --threads -N ", ranks, ' ', kSettings, ' ', words));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
    };
    keel(before, concat("run=whole checkpoint.every=", kCopiesEvery));
    for (const auto& entry : std::filesystem::directory_iterator(run.sandbox / ("whole/" + checkpoint))) {
      const std::string name = checkpoint + '/' + entry.path().filename().string();
      if (!name.ends_with(".safetensors")) continue;
      EXPECT_TRUE(run.sandbox.read("made/" + name) == run.sandbox.read("whole/" + name)) << name;
    }
    keel(after, concat("run=after resume=whole/", checkpoint));
    EXPECT_TRUE(run.sandbox.read("made/model.safetensors") == run.sandbox.read("after/model.safetensors"));
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  }
  static void expect_nothing_left(const ElasticRun& run, const std::string& host) {
    EXPECT_TRUE(std::filesystem::is_empty(run.sandbox / ("shm-" + host)));
  }
};

TEST_F(ElasticMemory, HasTheNewestStepsWhereOneOfThreeRanksIsKilledBeforeTheFirstCheckpoint) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(options(way, 2, 1));
    write_ssh(run.sandbox);
    RunningProgram program = run.start("--restarts 1" + more(), environment());
    pid_t killed = 0;
    ASSERT_TRUE(soon([&] { return run.last_step() >= 12 && (killed = run.rank(2)) != 0; }));
    const std::int64_t last = run.last_step();
    ::kill(killed, SIGKILL);
    std::cout << "from SIGKILL to the next step: " << run.seconds_until_steps(3, killed) << " s\n";
    const Outcome outcome = program.wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("; 3 ranks go on from a step in memory, or anew where there is none"), std::string::npos)
        << outcome.err;
    expect_little_lost(run, last, 3, 3);
    for (const int number : {1, 2}) expect_nothing_left(run, host(way, number));
  });
}

TEST_F(ElasticMemory, HasTheNewestStepsWhereAHostIsLostWithItsMemory) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(options(way, 2, 2));
    write_ssh(run.sandbox);
    RunningProgram program = run.start("--restarts 1 --min-ranks 2" + more(), environment());
    ASSERT_TRUE(soon([&] { return run.last_step() >= 27; }));
    const std::int64_t last = run.last_step();
    lose(host(way, 2), run.sandbox);
    std::filesystem::remove_all(run.sandbox / ("shm-" + host(way, 2)));
    const Outcome outcome = program.wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("; 2 ranks go on from step 20, or from a later one in memory"), std::string::npos)
        << outcome.err;
    expect_little_lost(run, last, 4, 2);
    expect_nothing_left(run, host(way, 1));
  });
}

}  // namespace
}  // namespace keel::cli
