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

TEST(PrecisionProbe, AProcessorWithoutInstructionsForBf16ComputesInFp32) {
  const PrecisionChoice choice = choose_precision(Context::create({.threads = 1}), 64);
  if (multiplies_bf16()) {
    const std::string before = "multiplies ", between = " GFLOP/s in bf16 and ";
    const std::size_t bf16 = choice.reason.find(before), fp32 = choice.reason.find(between);
    ASSERT_NE(bf16, std::string::npos) << choice.reason;
    ASSERT_NE(fp32, std::string::npos) << choice.reason;
    EXPECT_GE(std::stod(choice.reason.substr(bf16 + before.size())), 1) << choice.reason;
    EXPECT_GE(std::stod(choice.reason.substr(fp32 + between.size())), 1) << choice.reason;
  } else {
    EXPECT_EQ(choice.precision, Strategy::Precision::fp32);
    EXPECT_NE(choice.reason.find("has no instructions for bf16"), std::string::npos) << choice.reason;
  }
}

}  // namespace
}  // namespace keel
