#include "cli/bar.h"

#include <gtest/gtest.h>

#include <sstream>

namespace keel::cli {
namespace {

TEST(Bar, DrawsEachPercentOnceAndClearsItsLine) {
  std::ostringstream out;
  {
    Bar bar("indexing", 0, {.terminal = true}, out);
    for (const std::uint64_t done : {500, 504, 1000}) bar.show(done, 1000);
  }
  EXPECT_EQ(out.str(),
            "\rindexing [############.............] 50 %\rindexing [#########################] 100 %\r\x1b[K");
}

TEST(Bar, IsSilentWhereWorkIsShortAndWithoutATerminal) {
  std::ostringstream out;
  double now = 7;
  {
    Bar bar("indexing", 0.5, {.terminal = true, .now = [&] { return now; }}, out);
    for (; now < 7.4; now += 0.1) bar.show(1, 2);
  }
  {
    Bar bar("indexing", 0, {.terminal = false}, out);
    bar.show(1, 2);
  }
  EXPECT_EQ(out.str(), "");
  {
    Bar bar("indexing", 0.5, {.terminal = true, .now = [&] { return now; }}, out);
    now += 0.6;
    bar.show(1, 2);
  }
  EXPECT_NE(out.str().find("50 %"), std::string::npos) << "work that takes longer";
}

}  // namespace
}  // namespace keel::cli
