#include "cli/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

std::size_t widest_line(const std::string& text) {
  std::size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

TEST(Table, ColumnsOfLaterRanksAreShownWhereTheyFit) {
  const std::vector<ColumnWish> wishes = {{4, 0}, {5, 3}, {4, 1}, {4, 2}, {4, 2}};
  EXPECT_EQ(columns_that_fit(wishes, 1), (std::vector<bool>{true, false, false, false, false})) << "rank 0 in any case";
  EXPECT_EQ(columns_that_fit(wishes, 9), (std::vector<bool>{true, false, false, false, false}));
  EXPECT_EQ(columns_that_fit(wishes, 10), (std::vector<bool>{true, false, true, false, false}));
  EXPECT_EQ(columns_that_fit(wishes, 15), (std::vector<bool>{true, false, true, false, false})) << "a rank as a whole";
  EXPECT_EQ(columns_that_fit(wishes, 16), (std::vector<bool>{true, true, true, false, false}));
  EXPECT_EQ(columns_that_fit(wishes, 26), (std::vector<bool>(5, true)));
}

TEST(Table, IsAlignedNamesWhatIsLeftOutAndIsNoWiderThanAsked) {
  const std::vector<TableColumn> columns = {{"", "name", 0, true, {"a", "longer"}},
                                            {"time", "us", 0, false, {"1.5", "10.25"}},
                                            {"", "rest", 1, false, {"1", "2"}}};
  EXPECT_EQ(table_text(columns, 80, "#"),
            "#         time\n"
            "#name       us  rest\n"
            "#a         1.5     1\n"
            "#longer  10.25     2\n");
  EXPECT_EQ(table_text(columns, 17),
            "        time\n"
            "name      us rest\n"
            "a        1.5    1\n"
            "longer 10.25    2\n");
  EXPECT_EQ(table_text(columns, 16),
            "        time\n"
            "name      us\n"
            "a        1.5\n"
            "longer 10.25\n"
            "(with more --columns: rest)\n");
}

TEST(CompareCommand, FitsEightyColumnsAndShowsMoreWhereThereIsRoom) {
  const Sandbox sandbox;
  const std::string command =
      "compare text.yaml -N 2 --threads --steps 2 --repeats 2 --algorithms ordered,ring "
      "--compression int8,powersgd:4";
  const Outcome narrow = sandbox.keel(command), wide = sandbox.keel(command + " --columns 120");
  EXPECT_EQ(narrow.code, 0) << narrow.err;
  EXPECT_LE(widest_line(narrow.out), 80u) << narrow.out;
  EXPECT_EQ(wide.out.find("with more --columns"), std::string::npos) << wide.out;
  for (const char* word : {"weights", "loss", "bytes sent", "exposed", "p95"})
    EXPECT_NE(wide.out.find(word), std::string::npos) << word << wide.out;
  EXPECT_LE(widest_line(wide.out), 120u) << wide.out;
}

TEST(CommCommand, FitsTheColumnsThereAre) {
  const Sandbox sandbox;
  const std::string measured = sandbox
                                   .keel(
                                       "comm all_reduce broadcast --threads -N 2 --algorithms ordered -b 8 -e 8 -n 1 "
                                       "-w 1 --json a.json")
                                   .out;
  EXPECT_NE(measured.find("# wrong elements: 0 (OK)\n"), std::string::npos) << measured;
  for (const std::size_t columns : {80u, 100u, 120u, 160u}) {
    const Outcome outcome = sandbox.keel(concat("comm --from a.json --columns ", columns));
    EXPECT_LE(widest_line(outcome.out), columns) << outcome.out;
    EXPECT_EQ(outcome.out.find("in place") != std::string::npos, columns >= 160) << outcome.out;
  }
  EXPECT_LE(widest_line(sandbox.keel("comm --from a.json").out), 80u);
  const std::string all = sandbox.keel("comm --from a.json --columns 240").out;
  for (const char* head : {"count", "out of place", "in place", "p95", "between", "late"})
    EXPECT_NE(all.find(head), std::string::npos) << head;
  EXPECT_LE(widest_line(sandbox.keel("comm --compare a.json a.json").out), 80u);
}

}  // namespace
}  // namespace keel::cli
