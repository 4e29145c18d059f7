// Runs whose ranks die and that go on: `keel launch --restarts` over processes of MPI and of TCP.

#include "tests/cli/mpi/elastic_run.h"

namespace keel::cli {
namespace {

// Acceptance check 40.
TEST_F(Elastic, OneOfFourIsKilledThreeGoOnAndThenFourAgain) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(way.options());
    RunningProgram program = run.start("-N 4 --restarts 3 --min-ranks 2 --rejoin 3 run.yaml" + slow());
    const std::int64_t last = run.kill_at(1, 57);
    const double took = run.seconds_until_steps(3, run.rank(2));
    const Outcome outcome = program.wait();
    std::cout << concat("from SIGKILL to a step at N = 3 over ", way.name, ": ", took, " s\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<GoesOn> sessions = sessions_of(outcome.err);
    ASSERT_EQ(sessions.size(), 2u) << outcome.err;
    EXPECT_EQ(sessions[0].ranks, 3);
    EXPECT_LE(last - sessions[0].step, kEvery) << outcome.err;
    EXPECT_EQ(sessions[1].ranks, 4);
    EXPECT_NE(outcome.err.find("keel: rank 1 was killed by signal 9 (Killed; process "), std::string::npos)
        << outcome.err;
    EXPECT_EQ(count_of(outcome.err, "2 of 3 restarts are left"), 1) << outcome.err;
    EXPECT_EQ(outcome.err.find('\x1e'), std::string::npos) << "reports are for the launcher alone";
    expect_history(run, 4, sessions);
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

TEST_F(Elastic, OneOfThreeIsKilledAtRandomAndTwoGoOn) {
  in_one_way([](const Way& way) {
    std::mt19937 random = testing::by_commit();
    const ElasticRun run(way.options(), 40);
    RunningProgram program = run.start("-N 3 --restarts 1 --min-ranks 2 run.yaml" + slow());
    const std::int64_t last =
        run.kill_at(static_cast<int>(random() % 3), 10 + static_cast<std::int64_t>(random() % 20));
    const Outcome outcome = program.wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<GoesOn> sessions = sessions_of(outcome.err);
    ASSERT_EQ(sessions.size(), 1u) << outcome.err;
    EXPECT_EQ(sessions[0].ranks, 2);
    EXPECT_LE(last - sessions[0].step, kEvery) << outcome.err;
    expect_history(run, 3, sessions);
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

TEST_F(Elastic, WithoutALeastNumberAllGoOnAndBeforeTheFirstCheckpointAnewUntilRestartsAreUsedUp) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(way.options());
    RunningProgram program = run.start("-N 2 --restarts 1 run.yaml checkpoint.every=99" + slow());
    run.kill_at(1, 3);
    const std::string logs = "made/logs/rank-1.log";
    ASSERT_TRUE(soon([&] { return count_of(run.sandbox.read(logs), "step 1/100") == 2; })) << run.sandbox.read(logs);
    run.kill_at(0, 5);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, way.is_tcp ? outcome.code : 128 + SIGKILL);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find("; 2 ranks begin anew, as there is no checkpoint yet; no restart is left\n"),
              std::string::npos)
        << outcome.err;
    EXPECT_TRUE(outcome.err.ends_with("; the run ends, as the one restart of --restarts is used up\n")) << outcome.err;
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

TEST_F(Elastic, WhatARestartDoesNotCureEndsTheRun) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(way.options());
    for (const auto& [mistake, code] :
         std::map<std::string, int>{{"stepps=3", 2}, {"data.path=absent", 2}, {"optimizer.lr=1e30 clip=0", 3}}) {
      const Outcome outcome = run.start(concat("-N 2 --restarts 3 run.yaml ", mistake)).wait();
      EXPECT_EQ(outcome.code, code) << mistake << ": " << outcome.err;
      EXPECT_EQ(count_of(outcome.err, "\n"), 1) << outcome.err;
      EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
    }
  });
}

TEST_F(Elastic, ASignalOfTheUserStopsTheRunAlsoWhereARankHasJustDied) {
  in_both_ways([](const Way& way) {
    unsigned next = 0;
    for (const auto& [number, has_died] :
         {std::pair(SIGINT, true), std::pair(SIGINT, false), std::pair(SIGTERM, false), std::pair(SIGTERM, true)}) {
      if (!is_drawn(way, next++)) continue;
      SCOPED_TRACE(concat(number, has_died ? " after a death" : ""));
      const ElasticRun run(way.options());
      RunningProgram program = run.start("-N 2 --restarts 3 --min-ranks 1 run.yaml steps=100000" + slow());
      if (has_died) run.kill_at(1, 3);
      else ASSERT_TRUE(soon([&] { return run.last_step() > 2; }));
      program.send(number);
      const Outcome outcome = program.wait();
      EXPECT_TRUE(sessions_of(outcome.err).empty()) << outcome.err;
      if (!has_died) {
        EXPECT_EQ(outcome.code, 128 + number) << outcome.err;
        EXPECT_EQ(outcome.err, "");
        EXPECT_TRUE(run.sandbox.has("made/model.safetensors"));
      }
      EXPECT_NE(outcome.code, 0);
      EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
    }
  });
}

TEST_F(Elastic, ALauncherThatIsKilledLeavesNoOrphan) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(way.options());
    RunningProgram program = run.start("-N 3 --restarts 3 --min-ranks 1 --rejoin 1 run.yaml steps=100000" + slow());
    run.kill_at(2, 12);
    ASSERT_TRUE(soon([&] { return run.rank(2) == 0 && run.rank(1) != 0; }));
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().code, 128 + SIGKILL);
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

// What the ranks tell is enough to know which of them began it, in every way in which a rank can end.
TEST_F(Elastic, RanksTellWhichOfThemDiedOfWhat) {
  in_both_ways([](const Way& way) {
    struct Case {
      const char* fault;
      Ending::Why why;
      const char* text;
    };
    unsigned next = 0;
    for (const Case& each : {Case{"killed", Ending::Why::died, "was killed by signal 9"},
                             Case{"exits", Ending::Why::died, "about to exit in the midst of the run"},
                             Case{"exits_at_once", Ending::Why::died, "ended with exit code 0"},
                             Case{"throws", Ending::Why::died, "failed: the sky is falling"},
                             Case{"out_of_memory", Ending::Why::bad_input, "failed: out of memory"}}) {
      if (!is_drawn(way, next++)) continue;
      SCOPED_TRACE(each.fault);
      const ElasticRun run(way.options());
      const Outcome outcome = run.start(concat("-N 3 '", KEEL_FAULT_PROGRAM, "' ", each.fault, " 1 0 run.yaml"),
                                        concat("export ", kReportsVariable, "=1"))
                                  .wait();
      ReportReader reader;
      reader.pass(outcome.err);
      const Ending ending = ending_of({.code = outcome.code, .reports = reader.reports()});
      EXPECT_EQ(ending.why, each.why) << outcome.err;
      EXPECT_EQ(ending.dead, std::vector<int>{1}) << outcome.err;
      EXPECT_NE(ending.text.find(each.text), std::string::npos) << ending.text;
    }
  });
}

TEST_F(ElasticHosts, OneThatIsGoneIsLeftOutUntilItAnswersAgain) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(options(way));
    write_ssh(run.sandbox);
    RunningProgram program = run.start("--restarts 1 --min-ranks 2 --rejoin 1 run.yaml" + slow(), environment());
    ASSERT_TRUE(soon([&] { return run.last_step() >= 23 && run.rank(3) != 0; }));
    const pid_t before = run.rank(1);
    lose(host(way, 2), run.sandbox);
    ASSERT_TRUE(soon([&] { return run.rank(1) != 0 && run.rank(1) != before && run.rank(2) == 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    EXPECT_EQ(run.rank(2), 0) << "the host does not answer yet";
    std::filesystem::remove(run.sandbox / ("down-" + host(way, 2)));
    const Outcome outcome = program.wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find(concat("no answer comes from ", host(way, 2), "; 2 ranks go on from step ")),
              std::string::npos)
        << outcome.err;
    const std::vector<GoesOn> sessions = sessions_of(outcome.err);
    ASSERT_EQ(sessions.size(), 2u) << outcome.err;
    EXPECT_EQ(sessions[1].ranks, 4);
    expect_history(run, 4, sessions);
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

TEST_F(ElasticHosts, OneThatIsGoneEndsTheRunWhereAllRanksAreNeeded) {
  in_both_ways([](const Way& way) {
    const ElasticRun run(options(way));
    write_ssh(run.sandbox);
    RunningProgram program = run.start("--restarts 3 run.yaml" + slow(), environment());
    ASSERT_TRUE(soon([&] { return run.last_step() >= 3; })) << program.said_so_far();
    lose(host(way, 2), run.sandbox);
    const Outcome outcome = program.wait();
    EXPECT_NE(outcome.code, 0);
    EXPECT_TRUE(
        outcome.err.ends_with(concat("; no answer comes from ", host(way, 2),
                                     "; the run ends, as all 4 ranks are needed; --min-ranks lets fewer go on\n")))
        << outcome.err;
    EXPECT_EQ(testing::processes_left_in(run.sandbox / ""), "");
  });
}

TEST(ElasticWish, ThatMakesNoSenseIsOneClearLine) {
  const ElasticRun run("");
  for (const auto& [options, reason] : std::map<std::string, std::string>{
           {"-N 2 --tcp --restarts 1 ./program", "--restarts is for runs of `keel train`"},
           {"-N 2 --tcp --restarts 1 comm", "--restarts is for runs of `keel train`"},
           {"-N 2 --threads --restarts 1 run.yaml", "--restarts needs ranks that are processes"},
           {"-N 2 --tcp --restarts 1 --min-ranks 3 run.yaml", "--min-ranks 3 is more than the 2 ranks"},
           {"-N 2 --tcp --min-ranks 1 run.yaml", "it needs --restarts"},
           {"-N 2 --tcp --restarts 1 --rejoin 5 run.yaml", "it needs --restarts and --min-ranks"},
           {"-N 2 --tcp --restarts 1 run.yaml checkpoint.every=0", "this run makes none before its end, step 100"},
           {"-N 2 --tcp --restarts 1 run.yaml checkpoint.every=100", "this run makes none before its end, step 100"},
           {"-N 2 --tcp --restarts 1 run.yaml 'checkpoint={every: 0, memory_every: 100}'", "makes none before its end"},
           {"-N 2 --tcp --rejoin 5 run.yaml", "or --keep-going"},
           {"-N 2 --tcp --keep-going --rejoin 5 ./program", "--rejoin is for runs of `keel train`"},
           {"-N 2 --tcp --keep-going --restarts 1 run.yaml", "give one of them"},
           {"-N 2 --tcp --threads run.yaml", "give one of them"},
           {"-N 2 --tcp --restarts 1 absent.yaml", "absent.yaml"}}) {
    const Outcome outcome = run.start(options).wait();
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
    EXPECT_EQ(count_of(outcome.err, "\n"), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
  }
  EXPECT_FALSE(run.sandbox.has("made"));
}

}  // namespace
}  // namespace keel::cli
