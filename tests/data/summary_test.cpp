#include "keel/data/summary.h"

#include <gtest/gtest.h>

#include "keel/data/data_file.h"
#include "keel/runtime/file.h"
#include "tests/data/list_dataset.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using Lengths = std::map<std::int64_t, std::int64_t>;

TEST(Summary, TellsKindsRangesAndLengthsOfEveryField) {
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < 5000; ++i) {
    Example example = Example().set("x", 0.5 * static_cast<double>(i)).set("m", Numbers{{2, 1}, {1, -4}});
    example.set("ids", Integers{{i % 3}, std::vector(static_cast<std::size_t>(i % 3), i)});
    if (i == 4321) example.set("late", "abc").set("y", 1);
    if (i == 77) example.set("y", 1.5);
    examples.push_back(std::move(example));
  }
  std::vector<std::uint64_t> told;
  const std::vector<FieldSummary> fields =
      summary_of(testing::ListDataset(examples), [&](std::uint64_t done, std::uint64_t) { told.push_back(done); });
  const std::vector<FieldSummary> wanted = {
      {.name = "x", .kind = "a number", .examples = 5000, .least = 0, .most = 2499.5},
      {.name = "m", .kind = "numbers (2, 1)", .examples = 5000, .least = -4, .most = 1, .lengths = {{2, 5000}}},
      {.name = "ids",
       .kind = "whole numbers",
       .examples = 5000,
       .least = 1,
       .most = 4999,
       .lengths = {{0, 1667}, {1, 1667}, {2, 1666}}},
      {.name = "y", .kind = "a number or a whole number", .examples = 2, .least = 1, .most = 1.5},
      {.name = "late", .kind = "a text", .examples = 1, .lengths = {{3, 1}}}};
  EXPECT_EQ(fields, wanted);
  EXPECT_EQ(told, (std::vector<std::uint64_t>{4096, 5000}));
  EXPECT_TRUE(summary_of(testing::ListDataset({})).empty());
}

TEST(Summary, OfLengthsIsThatOfTheirSortedList) {
  const LengthSummary some = summary_of(Lengths{{1, 2}, {5, 1}, {9, 4}});
  EXPECT_EQ(some.examples, 7);
  EXPECT_EQ(some.least, 1);
  EXPECT_EQ(some.median, 9);
  EXPECT_EQ(some.most, 9);
  EXPECT_EQ(some.sum, 43);
  EXPECT_EQ(summary_of(Lengths{{1, 2}, {5, 1}, {9, 2}}).median, 5);
  EXPECT_EQ(summary_of(Lengths{}).examples, 0);
}

TEST(Summary, BinsHoldEveryLengthOnceAndBeginAtRoundNumbers) {
  for (const Lengths& lengths : {Lengths{{7, 3}}, Lengths{{0, 1}, {11, 2}}, Lengths{{0, 1}, {12, 2}},
                                 Lengths{{95, 1}, {1004, 2}, {77777, 3}}, Lengths{{1'000'000'000'000, 1}, {3, 1}}}) {
    const std::vector<LengthBin> bins = bins_of(lengths, 12);
    EXPECT_LE(bins.size(), 12u);
    std::int64_t examples = 0, width = bins.front().to - bins.front().from + 1;
    for (std::size_t i = 0; i < bins.size(); ++i) {
      EXPECT_EQ(bins[i].from % width, 0);
      EXPECT_EQ(bins[i].to, bins[i].from + width - 1);
      EXPECT_TRUE(i == 0 || bins[i].from == bins[i - 1].to + 1);
      std::int64_t inside = 0;
      for (const auto& [length, count] : lengths) inside += bins[i].from <= length && length <= bins[i].to ? count : 0;
      EXPECT_EQ(bins[i].examples, inside);
      examples += inside;
    }
    EXPECT_EQ(examples, summary_of(lengths).examples);
    while (width % 10 == 0) width /= 10;
    EXPECT_TRUE(width == 1 || width == 2 || width == 5) << width;
  }
  EXPECT_TRUE(bins_of({}, 5).empty());
}

TEST(DataFile, IsKnownByItsBeginOrItsName) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.txt", "a,b\n");
  write_text_file(folder / "t.csv", "a,b\n1,2\n");
  write_text_file(folder / "t.ndjson", "{}\n");
  EXPECT_EQ(kind_of_file(folder.path()), DataKind::files);
  EXPECT_EQ(kind_of_file(folder / "t.txt"), DataKind::text);
  EXPECT_EQ(kind_of_file(folder / "t.csv"), DataKind::csv);
  EXPECT_EQ(kind_of_file(folder / "t.ndjson"), DataKind::jsonl);
  EXPECT_EQ(open_data(folder / "t.csv")->example(0), Example().set("a", 1.0).set("b", 2.0));
  EXPECT_EQ(open_data(folder.path())->size(), 3);
  EXPECT_NE(error_of([&] { kind_of_file(folder / "missing"); }).find("missing"), std::string::npos);
}

}  // namespace
}  // namespace keel
