// What `strategy: auto` decides by.

#include "keel/trainer/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/nn/layers.h"
#include "keel/runtime/processor.h"

namespace keel {
namespace {

// A machine where another program takes the processor for most of the time: so many rounds of ten are slow, each in
// another place of the products.
std::function<ProbeRound()> disturbed(int slow_of_ten, int& rounds) {
  return [=, &rounds] {
    const int at = rounds++;
    return ProbeRound{at * 7 % 10 < slow_of_ten ? 8e-3 : 1.0e-3, at * 3 % 10 < slow_of_ten ? 8e-3 : 0.4e-3};
  };
}

TEST(InnerExtent, IsThatOfMostNumbersOfMatrices) {
  Linear matrix(3, 5);
  EXPECT_EQ(inner_extent(matrix), 3);
  LayerNorm none(7);
  EXPECT_EQ(inner_extent(none), 1);
  Mlp many({4, 6, 4, 9});  // 6 x 4, 4 x 6 and 9 x 4
  EXPECT_EQ(inner_extent(many), 4);
  struct Two : Module {
    Linear wide{50, 2}, tall{3, 9};
    void visit(Visitor& v) override {
      v("wide", wide);
      v("tall", tall);
    }
  } two;
  EXPECT_EQ(inner_extent(two), 50) << "100 numbers, and 27";
  Mlp equal({6, 4, 6});  // 4 x 6 and 6 x 4
  EXPECT_EQ(inner_extent(equal), 4) << "the smaller of two with as many";
}

TEST(PrecisionProbe, TheBestOfBothIsFoundOnABusyMachine) {
  for (const int slow : {0, 5, 9}) {
    int rounds = 0;
    const ProbeRound best = best_round(disturbed(slow, rounds));
    EXPECT_EQ(best.fp32, 1.0e-3) << slow;
    EXPECT_EQ(best.bf16, 0.4e-3) << slow;
    EXPECT_GE(rounds, 20) << slow;
  }
}

TEST(PrecisionProbe, ItEndsInTimeWhereEveryProductTakesLong) {
  int rounds = 0;
  best_round([&] { return ++rounds, ProbeRound{0.2, 0.1}; });
  EXPECT_EQ(rounds, 2);
  rounds = 0;
  best_round([&] {
    const double seconds = std::max(1e-3, 1e-2 * std::pow(0.9, rounds++));
    return ProbeRound{seconds, seconds};
  });
  EXPECT_GT(rounds, 40) << "20 more than it takes to become better";
}

TEST(PrecisionProbe, ItEndsTwentyRoundsBehindTheBestAndNotBeforeItsTime) {
  const auto rounds_of = [](double seconds, double least, double most) {
    int rounds = 0;
    best_round([&] { return ++rounds, ProbeRound{seconds, seconds}; }, least, most);
    return rounds;
  };
  EXPECT_EQ(rounds_of(0x1p-10, 0, 1e9), 20);
  EXPECT_EQ(rounds_of(0x1p-10, 0x1p-4, 1e9), 32) << "32 times two";
  EXPECT_EQ(rounds_of(0x1p-10, 0, 0x1p-6), 8);
  const auto rounds_until_better = [](double fp32, double bf16) {
    int rounds = 0;
    best_round(
        [&] {
          const bool is_tenth = ++rounds == 10;
          return ProbeRound{is_tenth ? fp32 : 1, is_tenth ? bf16 : 1};
        },
        0, 1e9);
    return rounds;
  };
  EXPECT_EQ(rounds_until_better(1, 1), 20);
  EXPECT_EQ(rounds_until_better(0.97, 1), 29);
  EXPECT_EQ(rounds_until_better(1, 0.97), 29);
  EXPECT_EQ(rounds_until_better(0.99, 0.99), 20) << "which is no better";
  for (const double other : {0.98, 1.0}) {
    EXPECT_EQ(rounds_until_better(0.98, other), 20) << "nor is what is just 0.98 of it";
    EXPECT_EQ(rounds_until_better(other, 0.98), 20);
  }
}

TEST(PrecisionProbe, AProcessorWithoutInstructionsForBf16ComputesInFp32) {
  const PrecisionChoice choice = choose_precision(Context::create({.threads = 1}), 64);
  if (multiplies_bf16()) {
    const std::string before = "multiplies ", between = " GFLOP/s in bf16 and ";
    const std::size_t bf16 = choice.reason.find(before), fp32 = choice.reason.find(between);
    ASSERT_NE(bf16, std::string::npos) << choice.reason;
    ASSERT_NE(fp32, std::string::npos) << choice.reason;
    EXPECT_GE(std::stod(choice.reason.substr(bf16 + before.size())), 1) << choice.reason;
    EXPECT_GE(std::stod(choice.reason.substr(fp32 + between.size())), 1) << choice.reason;
    const bool is_bf16 = choice.precision == Strategy::Precision::bf16;
    EXPECT_TRUE(choice.reason.starts_with(
        concat("strategy auto: ", is_bf16 ? "bf16" : "fp32", "; a thread of this processor multiplies ")))
        << choice.reason;
  } else {
    EXPECT_EQ(choice.precision, Strategy::Precision::fp32);
    EXPECT_NE(choice.reason.find("has no instructions for bf16"), std::string::npos) << choice.reason;
  }
}

}  // namespace
}  // namespace keel
