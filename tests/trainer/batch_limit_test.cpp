// The numbers at which limits of batches begin to be other ones.

#include "keel/trainer/batch_limit.h"

#include <gtest/gtest.h>

#include "keel/runtime/error.h"
#include "keel/tasks/task.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;
using Texts = std::vector<std::string>;

TEST(BatchLimit, IsANumberOrAPartAndIsWrittenTheSameWay) {
  for (const auto& [text, batches, percent] : {std::tuple<const char*, std::int64_t, double>{"0", 0, 0},
                                               {"1", 1, 0},
                                               {"1e3", 1000, 0},
                                               {"1e15", 1'000'000'000'000'000, 0},
                                               {"0.5%", 0, 0.5},
                                               {"1%", 0, 1},
                                               {"100%", 0, 100}}) {
    const BatchLimit limit = BatchLimit::parse(text);
    EXPECT_EQ(limit.batches, batches) << text;
    EXPECT_EQ(limit.percent, percent) << text;
    EXPECT_EQ(limit.text(), percent > 0 ? text : std::to_string(batches));
  }
  for (const std::string wrong : {"", "%", "-1", "-0.5", "1.5", "0%", "-1%", "100.5%", "101%", "1e16",
                                  "1000000000000001", "inf", "nan", "5x", "5 %", "x%", "1e999", "1e999%", "nan%"})
    EXPECT_EQ(error_of([&] { BatchLimit::parse(wrong); }),
              concat("expects a number of batches or a part of them, such as 10 or 25%, got '", wrong, "'"));
}

TEST(BatchLimit, TakesTheFirstBatchesOrAPartThatIsRoundedUp) {
  for (const auto& [limit, all, taken] : {std::tuple<const char*, std::int64_t, std::int64_t>{"0", 7, 7},
                                          {"3", 7, 3},
                                          {"7", 7, 7},
                                          {"8", 7, 7},
                                          {"1", 7, 1},
                                          {"50%", 7, 4},
                                          {"50%", 8, 4},
                                          {"0.5%", 1000, 5},
                                          {"1%", 1000, 10},
                                          {"1%", 1001, 11},
                                          {"10%", 30, 3},
                                          {"100%", 7, 7},
                                          {"7%", 300, 21},
                                          {"50%", 0, 0}})
    EXPECT_EQ(BatchLimit::parse(limit).of(all), taken) << limit << " of " << all;
}

TEST(BatchLimit, OfSetsIsTheirOwnOrThatOfAllOthers) {
  const BatchLimits limits = BatchLimits::parse({"dev=2", "9", "a=50%"});
  EXPECT_EQ(limits.of("dev").batches, 2);
  EXPECT_EQ(limits.of("a").percent, 50);
  EXPECT_EQ(limits.of("b").batches, 9);
  EXPECT_EQ(limits.texts(), (Texts{"9", "a=50%", "dev=2"}));
  EXPECT_EQ(BatchLimits::parse({}).texts(), Texts{"0"});
  EXPECT_EQ(error_of([] {
              BatchLimits::parse({"1", "2"});
            }),
            "has two limits for all sets; name the sets, as in dev=10");
  EXPECT_EQ(error_of([] { BatchLimits::parse({"=3"}); }), "expects a limit for each set, as in dev=10, got '=3'");
  EXPECT_EQ(error_of([] {
              BatchLimits::parse({"dev=3", "dev=4"});
            }),
            "expects a limit for each set, as in dev=10, got 'dev=4' once more");
  EXPECT_EQ(error_of([] { BatchLimits::parse({"dev=x"}); }),
            "expects a number of batches or a part of them, such as 10 or 25%, got 'x'");
}

TEST(BatchLimit, IsOfSetsThatThereAre) {
  const auto told = [](const BatchLimits& limits, const Texts& names) {
    std::vector<ValidationSet> sets;
    for (const std::string& name : names) sets.push_back({name, nullptr});
    return error_of([&] { limits.check_sets(sets, "eval.batches"); });
  };
  const BatchLimits dev = BatchLimits::parse({"dev=3"});
  EXPECT_EQ(told(dev, {"test", "dev"}), "");
  EXPECT_EQ(told(BatchLimits::parse({"3"}), {}), "");
  EXPECT_EQ(told(dev, {"", "test", "other"}), "eval.batches: there is no validation set 'dev'; there are test, other");
  EXPECT_EQ(told(dev, {""}), "eval.batches: there is no validation set 'dev'; none has a name");
}

}  // namespace
}  // namespace keel
