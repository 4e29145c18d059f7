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
TEST(ConfigChecks, AreToldWithThePlaceThatIsToBeChanged) {
  const std::vector<ToldCase> cases = read_told_cases(KEEL_SOURCE_DIR "/tests/golden/config_checks.txt");
  EXPECT_GT(cases.size(), 350u);
  for (const ToldCase& each : cases) EXPECT_EQ(told_of(each), each.told) << each.text;
}

}  // namespace
}  // namespace keel
