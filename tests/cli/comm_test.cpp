// `keel comm` as a user runs it: ranks as threads here, as processes in mpi/comm_test.cpp.

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "keel/dist/comm/schedule.h"
#include "keel/dist/lab/exercise.h"
#include "keel/dist/lab/report.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

constexpr const char* kQuick = " -b 8 -e 1K -f 128 -n 3 -w 1";

// Acceptance check 17, of this command: no MPI at all.
TEST(CommCommand, MeasuresEveryCollectiveByEveryAlgorithmAmongThreads) {
  const Sandbox sandbox;
  for (const int n : {1, 2, 3, 4}) {
    const Outcome outcome = sandbox.keel(
        concat("comm all --threads -N ", n, " --algorithms all --dtype f32,bf16 --json c.json --csv c.csv", kQuick));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("# wrong elements: 0 (OK)\n"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("# backend: no MPI runs below these ranks"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("sendrecv needs two ranks") != std::string::npos, n == 1);
    const lab::Report report = lab::load_report(sandbox / "c.json");
    EXPECT_TRUE(report.complete);
    EXPECT_EQ(report.nodes, std::vector<int>(static_cast<std::size_t>(n)));
    // The library, the collectives without algorithms, and of 8 bytes not every rank has an element.
    EXPECT_EQ(report.skipped.size(), n <= 2 ? 8u : 9u) << outcome.out;
    std::set<std::string> measured;
    for (const lab::Record& record : report.records) measured.insert(record.collective);
    EXPECT_EQ(measured.size(), lab::exercises().size() - (n == 1)) << "all but sendrecv of a rank alone";
    for (const lab::Record& record : report.records) {
      EXPECT_EQ(record.ranks, n);
      EXPECT_TRUE(record.wire_total_bytes.has_value());
      for (const lab::Variant& variant : lab::variants())
        if (const auto& timing = record.*variant.place) { EXPECT_EQ(timing->wrong, std::optional<std::int64_t>(0)); }
    }
    EXPECT_EQ(sandbox.read("c.csv"), lab::to_csv(report));
  }
}

// Acceptance check 3.
TEST(CommCommand, ReportsTheElementThatWasCorruptedAndExitsWithOne) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel(
      concat("comm broadcast --threads -N 3 --algorithms direct --corrupt 2:1 --json c.json -b 1K -e 1K -n 1 -w 1"));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("# wrong elements: 1\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(lab::load_report(sandbox / "c.json").records.at(0).in_place->wrong, std::optional<std::int64_t>(1));
}

// Acceptance check 13.
TEST(CommCommand, NamesTheRankThatComesLate) {
  const Sandbox sandbox;
  const Outcome outcome =
      sandbox.keel("comm --threads -N 3 --algorithms ring --late 1:50 --json c.json -b 1K -e 1K -n 4 -w 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(lab::load_report(sandbox / "c.json").records.at(0).out_of_place->straggler, 1) << outcome.out;
}

// A ring of two ranks sends two messages of 4 KiB one after the other, at 1 MiB a second.
TEST(CommCommand, MessagesOfASlowerNetworkTakeTheirTime) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel(
      "comm --threads -N 2 --algorithms ring,backend --delay 2000 --bandwidth 1M --json c.json -b 8K -e 8K -n 2 -w 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("# backend: a slower network is made of keel's own messages\n"), std::string::npos)
      << outcome.out;
  const lab::Report report = lab::load_report(sandbox / "c.json");
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_GE(report.records[0].out_of_place->min_us, 2 * (2000 + 4096 / 1.048576));
}

TEST(CommCommand, CountsPretendedNodesApart) {
  const Sandbox sandbox;
  ASSERT_EQ(
      sandbox.keel("comm --threads -N 4 --ranks-per-node 2 --algorithms hier,ordered --json c.json -b 1K -e 1K -n 1")
          .code,
      0);
  const lab::Report report = lab::load_report(sandbox / "c.json");
  EXPECT_EQ(report.nodes, (std::vector<int>{0, 0, 1, 1}));
  ASSERT_EQ(report.records.size(), 2u);
  EXPECT_EQ(report.records[0].wire_between_bytes, std::optional<std::int64_t>(2 * 1024 / 4));
  EXPECT_EQ(report.records[1].wire_between_bytes, std::optional<std::int64_t>(2 * 2 * 1024 / 4));
}

TEST(CommCommand, MeasuresEveryRootAndOperationInStepsWithCallsAtOnce) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel(
      "comm reduce gather --threads -N 3 --algorithms ordered --root all --op max,avg --dtype f32,u8 -b 1K -e 3K -i 1K "
      "-m 3 --barrier --overlap 2 -n 2 -w 1 --json c.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("# wrong elements: 0 (OK)\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("# reduce (maximum, root 2, 3 at once) among 3 ranks"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("overlap"), std::string::npos) << outcome.out;
  const lab::Report report = lab::load_report(sandbox / "c.json");
  EXPECT_EQ(report.records.size(), (2u + 1u) * 3 * 2 * 3) << "operations, roots, dtypes, sizes";
  std::set<std::string> asked;
  for (const lab::Record& record : report.records) {
    asked.insert(asked_of(record));
    EXPECT_EQ(record.at_once, 3);
    EXPECT_EQ(record.bytes % 1024, 0);
    for (const lab::Variant& variant : lab::variants()) {
      const auto& timing = record.*variant.place;
      ASSERT_TRUE(timing.has_value());
      EXPECT_EQ(timing->wrong, std::optional<std::int64_t>(0)) << describe(record);
      EXPECT_TRUE(timing->overlap && *timing->overlap >= 0 && *timing->overlap <= 100);
    }
    // One call's bytes: the longest part of a rank that is not the root.
    const std::int64_t longest = part({0, record.count}, 3, record.root == 0 ? 1 : 0).count();
    if (record.collective == "gather") { EXPECT_EQ(record.wire_inside_bytes, longest * record.bytes / record.count); }
  }
  EXPECT_EQ(asked.size(), 9u);
}

TEST(CommCommand, RefusesBadInputBeforeAnythingRuns) {
  const Sandbox sandbox;
  struct Row {
    const char *arguments, *words;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"allreduce", "did you mean 'all_reduce'?"},
           {"--algorithms rign", "did you mean 'ring'?"},
           {"--dtype fp32", "did you mean 'f32'?"},
           {"-b 8X", "'8X' is no size"},
           {"-b 64 -e 8", "is larger than the largest"},
           {"-f 1", "a factor above 1"},
           {"-i 0", "a step needs a size above 0"},
           {"-i 8 -f 4", "by --step or by --factor, not by both"},
           {"--op summ", "did you mean 'sum'?"},
           {"--root one", "--root expects a rank or all"},
           {"--root 1", "there is no rank 1 among 1"},
           {"-m 0", "-m,--at-once expects a whole number from 1 to 1024"},
           {"-n 0", "-n,--iters expects a whole number from 1 to 1000000"},
           {"--late two", "--late expects a rank and a number"},
           {"--late 1:50", "there is no rank 1 among 1"},
           {"--bandwidth 0", "--bandwidth needs a size above 0"},
           {"--delay -1", "--delay"},
           {"--corrupt 0:0 --no-check", "--no-check switches it off"},
           {"--device cuda:77", "cuda:77"},
           {"--json absent/c.json", "--json absent/c.json: the folder"},
           {"--from absent.json", "absent.json"},
           {"--compare absent.json absent.json", "absent.json"},
       }) {
    const Outcome outcome = sandbox.keel(concat("comm ", row.arguments));
    EXPECT_EQ(outcome.code, 2) << row.arguments;
    EXPECT_NE(outcome.err.find(row.words), std::string::npos) << row.arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << row.arguments;
  }
}

TEST(CommCommand, WhatFollowsAListIsNotPartOfIt) {
  const Outcome outcome = Sandbox().keel(concat("comm --threads -N 2", kQuick, " --algorithms ring reduce_scatter"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("# reduce_scatter among 2 ranks"), std::string::npos) << outcome.out;
}

TEST(CommCommand, ShowsPlotsAndComparesWhatWasWritten) {
  const Sandbox sandbox;
  ASSERT_EQ(
      sandbox.keel(concat("comm all_gather --threads -N 2 --algorithms ring,flat --json c.json --plot run.svg", kQuick))
          .code,
      0);
  const Outcome shown = sandbox.keel("comm --from c.json --plot file.svg --csv c.csv");
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(sandbox.read("run.svg"), sandbox.read("file.svg"));
  EXPECT_EQ(sandbox.read("c.csv"), lab::to_csv(lab::load_report(sandbox / "c.json")));
  const Outcome compared = sandbox.keel("comm --compare c.json c.json");
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_NE(compared.out.find(" 1.00\n"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("# 0 of 8 differ by more than calls vary\n"), std::string::npos) << compared.out;

  sandbox.write("cut.json", sandbox.read("c.json").substr(0, 500));
  const Outcome cut = sandbox.keel("comm --compare c.json cut.json");
  EXPECT_EQ(cut.code, 2);
  EXPECT_NE(cut.err.find("cut.json is not whole"), std::string::npos) << cut.err;
}

TEST(CommCommand, PredictsMoreRanksFromFilesOfFewer) {
  const Sandbox sandbox;
  for (const int n : {2, 4})
    ASSERT_EQ(sandbox.keel(concat("comm --threads -N ", n, " --algorithms ring --json ", n, ".json", kQuick)).code, 0);
  const Outcome outcome = sandbox.keel("comm --from 2.json,4.json --predict 8,64");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("# all_reduce ring f32: "), std::string::npos) << outcome.out;
  const auto extrapolated = outcome.out.find("  extrapolated\n");
  EXPECT_NE(extrapolated, std::string::npos) << "64 is more than 8 times 4" << outcome.out;
  for (const char* arguments : {"--predict 8", "--from 2.json,4.json", "--from 2.json --predict 0"})
    EXPECT_EQ(sandbox.keel(concat("comm ", arguments)).code, 2) << arguments;
}

// What a run measured before it was stopped stands in a whole file, and nothing else is left beside it.
TEST(CommCommand, AnInterruptedRunLeavesWholeFiles) {
  for (const int number : {SIGINT, SIGKILL}) {
    const Sandbox sandbox;
    sandbox.write("c.json", "the one before");
    RunningProgram program = sandbox.start(
        "comm --threads -N 2 --algorithms ring -b 8 -e 1M -f 1.01 -n 1000 -w 1 --json c.json --csv c.csv");
    for (int i = 0; i < 3000 && sandbox.read("c.json") == "the one before"; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    program.send(number);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 128 + number) << outcome.err;
    const lab::Report report = lab::load_report(sandbox / "c.json");
    EXPECT_FALSE(report.complete);
    EXPECT_FALSE(report.records.empty());
    if (number == SIGINT) {
      EXPECT_NE(outcome.out.find("# stopped by a signal"), std::string::npos);
      EXPECT_EQ(sandbox.contents().count("c.json.tmp"), 0u);
    }
  }
}

TEST(CommCommand, HelpExplainsColumnsFactorsAndAlgorithms) {
  const Outcome outcome = testing::run_keel("comm --help");
  EXPECT_EQ(outcome.code, 0);
  for (const char* words : {"busbw", "#wrong", "skew", "2 (n - 1) / n", "PERFORMANCE.md", "ordered", "backend", "rhd"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace keel::cli
