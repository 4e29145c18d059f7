// Schedules and their parameters at the edges: where stages meet, and at limits.

#include <gtest/gtest.h>

#include <cmath>

#include "keel/runtime/error.h"
#include "tests/error_of.h"
#include "tests/optim/schedule_support.h"

namespace keel {
namespace {

using P = ScheduleParameter;
using Form = ScheduleValue::Form;
using testing::Setting;
using testing::with;

std::string refusal_of(const ScheduleSettings& settings, std::int64_t total = 400) {
  return testing::complaint_of(settings, 0.01, total);
}

double factor_of(const ScheduleSettings& settings, std::int64_t done) {
  return RateSchedule(settings, 1, 400).factor(done);
}

TEST(ScheduleEdges, EveryNumberIsAllowedUpToItsLimitsAndNotBeyond) {
  for (const ScheduleKind& kind : schedule_kinds())
    for (const ScheduleUse& use : kind.parameters) {
      const ScheduleParameterRow& row = schedule_parameter(use.parameter);
      SCOPED_TRACE(row.name);
      const bool is_whole = row.type == ScheduleValueType::whole || row.type == ScheduleValueType::count_or_ratio;
      if (!is_whole && row.type != ScheduleValueType::number && row.type != ScheduleValueType::rate) continue;
      const double step = is_whole ? 1 : 1e-9;
      const auto allowed = [&](double number) { return is_allowed(use, {number}); };
      const ScheduleLimits& limits = row.limits;
      ASSERT_TRUE(std::isfinite(limits.low));
      EXPECT_FALSE(allowed(limits.low - step));
      EXPECT_EQ(allowed(limits.low), !limits.low_open);
      EXPECT_TRUE(allowed(limits.low + step));
      EXPECT_FALSE(allowed(std::nan("")));
      EXPECT_FALSE(allowed(HUGE_VAL));
      if (is_whole) {
        EXPECT_FALSE(allowed(limits.low + 0.5));
        EXPECT_TRUE(allowed(0x1p53));
        EXPECT_FALSE(allowed(0x1p54));
      }
      if (!std::isfinite(limits.high)) continue;
      EXPECT_TRUE(allowed(limits.high - step));
      EXPECT_EQ(allowed(limits.high), !limits.high_open);
      EXPECT_FALSE(allowed(limits.high + step));
    }
}

TEST(ScheduleEdges, ChoicesAndFlagsAreTheirPlaces) {
  const ScheduleUse choice = {P::anneal, "cos", "cos|linear"}, flag = {P::cycle, "false"};
  for (const ScheduleUse& use : {choice, flag})
    for (const double number : {-1.0, 0.0, 0.5, 1.0, 2.0})
      EXPECT_EQ(is_allowed(use, {number}), number == 0 || number == 1) << number;
  const ScheduleUse ratio = {P::warmup, "0"};
  for (const double number : {-0.1, 0.0, 1.0, 1.1})
    EXPECT_EQ(is_allowed(ratio, {number, Form::ratio}), number == 0 || number == 1) << number;
  EXPECT_FALSE(is_allowed({P::step_size, "5"}, {0.5, Form::ratio}));
}

TEST(ScheduleEdges, WhatJustFitsTogetherIsTaken) {
  EXPECT_EQ(refusal_of(with("cosine", {{P::warmup, 400}})), "");
  EXPECT_EQ(refusal_of(with("cosine", {{P::min_lr, 0.01}})), "");
  EXPECT_EQ(refusal_of(with("OneCycleLR", {{P::steps, 400}})), "");
  EXPECT_EQ(refusal_of(with("wsd", {{P::warmup, 200}, {P::decay, 200}})), "");
  EXPECT_EQ(refusal_of(with("CyclicLR", {{P::base_lr, 0.5}, {P::max_lr, 0.5}})), "");
  for (const std::string_view name : {"CyclicLR", "OneCycleLR"})
    for (const double momentum : {0.8, 0.81}) {
      ScheduleSettings settings = with(name, {{P::base_momentum, momentum}, {P::max_momentum, 0.8}});
      settings[P::base_lr] = {0.001};
      EXPECT_EQ(refusal_of(settings), momentum == 0.8 ? "" : "base_momentum: is above max_momentum") << name;
    }
  EXPECT_EQ(refusal_of(with("sqrt_decay", {{P::warmup, 1}})), "");
  EXPECT_EQ(refusal_of(with("sqrt_decay", {{P::constant, 1}})), "");
  EXPECT_NE(refusal_of(with("sqrt_decay", {{P::warmup, 1}, {P::constant, 1}})), "");
  EXPECT_EQ(refusal_of(with("linear", {{P::steps, 1}, {P::warmup, 2}})),
            "warmup: 2 warm-up steps do not fit into the schedule's 1");
  EXPECT_EQ(refusal_of(with("constant", {{P::warmup, 5}}), 0), "") << "of a length that is not known";
  ScheduleSettings steps = default_schedule("MultiStepLR");
  steps.milestones = {1, 2};
  EXPECT_EQ(refusal_of(steps), "");
  for (const std::vector<std::int64_t>& milestones : {std::vector<std::int64_t>{0}, {2, 2}}) {
    steps.milestones = milestones;
    EXPECT_NE(refusal_of(steps), "");
  }
  ScheduleSettings product = default_schedule("product");
  product.parts = {default_schedule("OneCycleLR"), default_schedule("cosine")};
  EXPECT_EQ(refusal_of(product), "") << "one of them may cycle the momentum";
}

TEST(ScheduleEdges, AutoFollowsTheWarmUp) {
  const auto after = [](double warmup, double steps) {
    return factor_of(with("inverse_sqrt", {{P::warmup, warmup}}), static_cast<std::int64_t>(warmup + steps));
  };
  EXPECT_DOUBLE_EQ(after(0, 30000), 0.5) << "10000 steps without one";
  EXPECT_DOUBLE_EQ(after(1, 3), 0.5);
  EXPECT_DOUBLE_EQ(after(7, 21), 0.5);
  const auto begin = [](double warmup) {
    return factor_of(with("cosine_warmup_with_min_lr", {{P::warmup, warmup}}), 0);
  };
  EXPECT_DOUBLE_EQ(begin(4), 0.25);
  EXPECT_DOUBLE_EQ(begin(1), 1);
  EXPECT_NEAR(begin(0), 1, 1e-4) << "one step of the wave is behind";
}

TEST(ScheduleEdges, AWarmUpOfNoSteps) {
  for (const std::string_view name : {"constant", "linear", "cosine", "constant_with_warmup", "linear_with_warmup",
                                      "cosine_with_warmup", "cosine_with_restarts", "inverse_sqrt", "polynomial",
                                      "cosine_with_min_lr", "polynomial_decay", "polynomial_decay_layerwise"})
    EXPECT_EQ(factor_of(with(name, {{P::warmup, 0}}), 0), 1) << name;
  EXPECT_EQ(factor_of(with("wsd", {{P::warmup, 0}, {P::decay, 100}}), 0), 1);
}

TEST(ScheduleEdges, OneCycleRisesInNoStepAndInOne) {
  const auto at = [](double part, std::int64_t done) {
    return RateSchedule(with("OneCycleLR", {{P::pct_start, part}, {P::div_factor, 10}}), 1, 4).factor(done);
  };
  EXPECT_DOUBLE_EQ(at(0.25, 0), 1);
  EXPECT_DOUBLE_EQ(at(0.5, 0), 0.1);
  EXPECT_DOUBLE_EQ(at(0.5, 1), 1);
  EXPECT_EQ(at(0.5, 4), at(0.5, 3)) << "behind the last step";
}

TEST(ScheduleEdges, SomeHaveNoRateBehindTheirSteps) {
  for (const std::string_view name : {"OneCycleLR", "sqrt_decay", "normal_decay", "polynomial_decay"}) {
    ScheduleSettings settings = with(name, {{P::steps, 100}});
    if (name == "sqrt_decay") settings[P::constant] = {1};
    EXPECT_EQ(refusal_of(settings, 100), "") << name;
    EXPECT_EQ(refusal_of(settings, 101), concat("steps: ", name, " ends after 100 steps, and the run has 101"));
  }
}

TEST(ScheduleEdges, TheLastPartOfASequenceIsAsLongAsTheRunIfThatIsKnown) {
  ScheduleSettings sequence = default_schedule("sequence");
  sequence.milestones = {10};
  sequence.parts = {default_schedule("constant"), with("constant", {{P::warmup, 5}})};
  for (const std::int64_t total : {0, 15, 400}) EXPECT_EQ(refusal_of(sequence, total), "") << total;
  EXPECT_NE(refusal_of(sequence, 14), "");
}

TEST(ScheduleEdges, OfALongTextThatIsNoValueTheBeginningIsShown) {
  const auto told = [](std::size_t letters) {
    return testing::error_of([&] { read_schedule_value({P::power, "1"}, std::string(letters, 'x')); });
  };
  const auto ends = [](const std::string& text, const std::string& end) {
    EXPECT_TRUE(text.size() > end.size() && text.ends_with(end)) << text;
  };
  ends(told(60), concat("got '", std::string(60, 'x'), "'"));
  ends(told(61), concat("got '", std::string(60, 'x'), "...'"));
}

TEST(ScheduleEdges, StagesMeet) {
  // A wave that comes back is cut off where the decay ends.
  const auto stable = with("wsd", {{P::decay, 100}, {P::cycles, 1}, {P::min_ratio, 0.1}});
  EXPECT_NEAR(factor_of(stable, 399), 1, 1e-2);
  EXPECT_EQ(factor_of(stable, 400), 0.1);
  // A power of 0 stays at the peak to the last step.
  const auto flat = with("polynomial", {{P::power, 0}, {P::steps, 100}, {P::min_lr, 0.5}});
  EXPECT_EQ(factor_of(flat, 100), 1);
  EXPECT_EQ(factor_of(flat, 101), 0.5);
  const auto restarts = with("cosine_with_restarts", {{P::steps, 100}, {P::cycles, 2}});
  EXPECT_DOUBLE_EQ(factor_of(restarts, 50), 1);
  EXPECT_EQ(factor_of(restarts, 100), 0);
  EXPECT_EQ(factor_of(with("ConstantLR", {{P::factor, 0.5}, {P::total_iters, 4}}), 3), 0.5);
  EXPECT_EQ(factor_of(with("ConstantLR", {{P::factor, 0.5}, {P::total_iters, 4}}), 4), 1);
  EXPECT_DOUBLE_EQ(factor_of(with("WarmupLR", {{P::warmup, 10}}), 11), 1);
  EXPECT_EQ(factor_of(with("WarmupCosineLR", {{P::warmup, 10}}), 0), 0);
}

TEST(ScheduleEdges, AProductMultipliesTheFactorsOfLayers) {
  ScheduleSettings product = default_schedule("product");
  product.parts = {with("polynomial_decay_layerwise", {{P::warmup, 0}, {P::layer_decay, 0.5}}),
                   with("polynomial_decay_layerwise", {{P::warmup, 0}, {P::layer_decay, 0.25}}),
                   default_schedule("cosine")};
  EXPECT_EQ(RateSchedule(product, 1, 400).layer_factor(3, 5), 0.25 * 0.0625);
}

}  // namespace
}  // namespace keel
