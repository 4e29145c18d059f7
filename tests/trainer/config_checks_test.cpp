// What values of a configuration ask of each other, message by message.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "tests/trainer/told_cases.h"

namespace keel {
namespace {

using testing::read_told_cases;
using testing::ToldCase;

std::string told_of(const ToldCase& each) {
  std::vector<std::string> notes, words = each.words;
  if (words == std::vector<std::string>{"-"}) words.clear();
  std::string told;
  try {
    (void)parse_config(each.text, "c", words, "command line", &notes);
    told = "taken\n";
  } catch (const Error& error) {
    told = concat(error.kind() == ErrorKind::unsupported ? "not offered: " : "", error.what(), '\n');
  }
  for (const std::string& note : notes) told += concat("note: ", note, '\n');
  return told;
}

// The words of a case are the command line's; "-": none.
TEST(ConfigChecks, AreToldWithThePlaceThatIsToBeChanged) {
  const std::vector<ToldCase> cases = read_told_cases(KEEL_SOURCE_DIR "/tests/golden/config_checks.txt");
  EXPECT_GT(cases.size(), 100u);
  for (const ToldCase& each : cases) EXPECT_EQ(told_of(each), each.told) << each.text;
}

}  // namespace
}  // namespace keel
