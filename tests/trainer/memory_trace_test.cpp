// The file of changes of memory that a run's recorded steps leave.

#include "keel/trainer/memory_trace.h"

#include <gtest/gtest.h>

#include <vector>

namespace keel {
namespace {

TEST(MemoryTrace, CountsTimeFromTheStartAndNumbersTheBlocksOfEachRank) {
  const std::vector<MemoryChange> changes = {
      {.time = 1000, .bytes = 40, .block = 0, .rank = 0, .purpose = Purpose::parameter},
      {.time = 1007, .bytes = 8, .block = 0xA0, .rank = 0, .purpose = Purpose::gradient},
      {.time = 1009, .bytes = 16, .block = 0xA0, .rank = 1, .purpose = Purpose::gradient},
      {.time = 1012, .bytes = -8, .block = 0xA0, .rank = 0, .purpose = Purpose::gradient},
      {.time = 1015, .bytes = 4, .block = 0xA0, .rank = 0, .purpose = Purpose::workspace},
      {.time = 1020, .bytes = -4, .block = 0xB0, .rank = 1, .purpose = Purpose::workspace}};
  const Json trace = memory_trace(changes, 3, 990, 5);
  EXPECT_EQ(trace.at("format").string(), "keel memory");
  EXPECT_EQ(trace.at("version").integer(), 1);
  EXPECT_EQ(trace.at("began").integer(), 3);
  EXPECT_EQ(trace.at("dropped").integer(), 5);
  const auto number = [](Purpose purpose) { return static_cast<int>(purpose); };
  const int gradient = number(Purpose::gradient), workspace = number(Purpose::workspace);
  EXPECT_EQ(trace.at("purposes").items().at(static_cast<std::size_t>(gradient)).string(), name_of(Purpose::gradient));
  ASSERT_EQ(trace.at("ranks").items().size(), 2U);
  const auto changes_of = [&](std::size_t place) { return trace.at("ranks").items()[place].at("changes").dump(); };
  EXPECT_EQ(changes_of(0),
            Json::array({Json::array({10, 40, number(Purpose::parameter), 0}), Json::array({17, 8, gradient, 1}),
                         Json::array({22, -8, gradient, 1}), Json::array({25, 4, workspace, 2})})
                .dump());
  EXPECT_EQ(changes_of(1),
            Json::array({Json::array({19, 16, gradient, 1}), Json::array({30, -4, workspace, 0})}).dump())
      << "a block that came before the window has no number";
}

}  // namespace
}  // namespace keel
