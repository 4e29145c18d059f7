// `keel comm` among processes: MPI's own collectives beside keel's.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/dist/lab/exercise.h"
#include "keel/dist/lab/report.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

class MpiComm : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string probe = testing::run_keel("launch -N 2 true").err;
    if (!probe.empty()) GTEST_SKIP() << probe;
  }
  const Sandbox sandbox;
};

// Acceptance check 17, of this command: among processes of MPI.
TEST_F(MpiComm, MeasuresEveryCollectiveByKeelAndByTheLibrary) {
  for (const int n : {2, 3, 4}) {
    const Outcome outcome = sandbox.keel(
        concat("comm all -N ", n, " --algorithms all --dtype f32,bf16 -b 1000 -e 1000 -n 3 -w 1 --json c.json"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("# wrong elements: 0 (OK)\n"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("# backend: MPI has no sum of bf16\n"), std::string::npos) << outcome.out;
    const lab::Report report = lab::load_report(sandbox / "c.json");
    int by_library = 0;
    for (const lab::Record& record : report.records) {
      EXPECT_EQ(record.ranks, n);
      EXPECT_EQ(record.wire_total_bytes.has_value(), record.algorithm != "backend");
      by_library += record.algorithm == "backend";
    }
    const auto all = lab::exercises();
    const auto adding = std::count_if(all.begin(), all.end(), [](const lab::Exercise& one) { return one.adds(); });
    EXPECT_EQ(by_library, 2 * static_cast<std::ptrdiff_t>(all.size()) - adding) << "MPI cannot add bf16";
  }
}

TEST_F(MpiComm, RunsUnderTheLauncherAsACommand) {
  const Outcome outcome = sandbox.keel("launch -N 2 comm -b 1K -e 1K -n 3 -w 1 --json c.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(lab::load_report(sandbox / "c.json").records.size(), 2u);
}

// Acceptance check 3: among processes, too.
TEST_F(MpiComm, ReportsTheElementThatWasCorruptedAndExitsWithOne) {
  const Outcome outcome =
      sandbox.keel("comm all_gather -N 3 --algorithms backend --corrupt 1:7 -b 1K -e 1K -n 1 -w 1 --json c.json");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(lab::load_report(sandbox / "c.json").records.at(0).out_of_place->wrong, std::optional<std::int64_t>(1));
}

TEST_F(MpiComm, AnUnknownNameIsSaidOnce) {
  const Outcome outcome = sandbox.keel("launch -N 2 comm allreduce");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "keel: error: there is no collective 'allreduce', did you mean 'all_reduce'?\n");
}

}  // namespace
}  // namespace keel::cli
