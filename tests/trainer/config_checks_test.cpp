// What values of a configuration ask of each other, message by message.

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "tests/trainer/told_cases.h"

namespace keel {
namespace {

using testing::read_told_cases;
using testing::ToldCase;

std::set<std::string> lines_of(const Config& config) {
  std::set<std::string> lines;
  std::istringstream text(to_yaml(config));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

// What is wrong, or else the lines that the configuration has and one without its third line and those behind it has
// not.
std::string told_of(const ToldCase& each) {
  static const std::set<std::string> plain = lines_of(parse_config("steps: 100\ndata: {type: addition}\n", "c"));
  std::vector<std::string> notes, words = each.words;
  if (words == std::vector<std::string>{"-"}) words.clear();
  std::string told;
  try {
    for (const std::string& line : lines_of(parse_config(each.text, "c", words, "command line", &notes)))
      if (!plain.contains(line)) told += concat("taken: ", line, '\n');
    if (told.empty()) told = "taken\n";
  } catch (const Error& error) {
    told = concat(error.kind() == ErrorKind::unsupported ? "not offered: " : "", error.what(), '\n');
  }
  for (const std::string& note : notes) told += concat("note: ", note, '\n');
  return told;
}

// The words of a case are the command line's; "-": none.
void expect_checked(const std::string& cases_of) {
  const std::vector<ToldCase> cases =
      read_told_cases(concat(KEEL_SOURCE_DIR "/tests/golden/config_checks/", cases_of, ".txt"));
  EXPECT_GT(cases.size(), 10u);
  for (const ToldCase& each : cases) EXPECT_EQ(told_of(each), each.told) << each.text;
}

TEST(ConfigChecks, OfStrategiesAndModels) { expect_checked("strategies"); }
TEST(ConfigChecks, OfPlaces) { expect_checked("places"); }
TEST(ConfigChecks, OfSchedules) { expect_checked("schedules"); }
TEST(ConfigChecks, OfOptimizers) { expect_checked("optimizers"); }
TEST(ConfigChecks, OfAnOptimizerOfOneVector) { expect_checked("lbfgs"); }
TEST(ConfigChecks, OfGroupsOfParameters) { expect_checked("groups"); }
TEST(ConfigChecks, OfCompression) { expect_checked("compression"); }
TEST(ConfigChecks, OfSharding) { expect_checked("sharding"); }
TEST(ConfigChecks, OfOuterSteps) { expect_checked("outer"); }
TEST(ConfigChecks, OfBestCheckpointsAndAverages) { expect_checked("callbacks"); }
TEST(ConfigChecks, OfLengthsAndLimits) { expect_checked("lengths"); }

}  // namespace
}  // namespace keel
