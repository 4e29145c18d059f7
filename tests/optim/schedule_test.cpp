#include "keel/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "keel/runtime/error.h"
#include "tests/optim/schedule_support.h"

namespace keel {
namespace {

using P = ScheduleParameter;
using Form = ScheduleValue::Form;
using testing::complaint_of;
using testing::with;

// Every schedule with parameters that work together, on a run of 400 steps.
constexpr std::int64_t kSteps = 400;
constexpr double kBase = 0.01;
ScheduleSettings working(const ScheduleKind& kind) {
  ScheduleSettings settings = default_schedule(kind.name);
  for (const ScheduleUse& use : kind.parameters) switch (use.parameter) {
      case P::warmup: settings[P::warmup] = {kind.name == "sqrt_decay" ? 0.0 : 50.0}; break;
      case P::constant: settings[P::constant] = {30}; break;
      case P::decay: settings[P::decay] = {100}; break;
      case P::base_lr: settings[P::base_lr] = {kBase / 10}; break;
      case P::step_size: settings[P::step_size] = {70}; break;
      case P::gamma: settings[P::gamma] = {0.9}; break;
      case P::t_0: settings[P::t_0] = {60}; break;
      case P::step_size_up: settings[P::step_size_up] = {90}; break;
      case P::milestones: settings.milestones = {120}; break;
      case P::schedules:
        settings.parts = {with("LinearLR", {{P::total_iters, 120}}), default_schedule("CosineAnnealingLR")};
        break;
      default: break;
    }
  return settings;
}

TEST(RateSchedule, WarmsUpInEqualStepsToThePeak) {
  const RateSchedule schedule(with("constant", {{P::warmup, 4}}), 1, 0);
  for (std::int64_t done = 0; done <= 4; ++done)
    EXPECT_DOUBLE_EQ(schedule.factor(done), static_cast<double>(done + 1) / 5);
  EXPECT_EQ(schedule.factor(1000), 1);
}

TEST(RateSchedule, CosineFallsFromThePeakOverTheMiddleToItsEnd) {
  const RateSchedule schedule(with("cosine", {{P::warmup, 10}, {P::steps, 110}, {P::min_lr, 0.1}}), 1, 0);
  EXPECT_DOUBLE_EQ(schedule.factor(10), 1);
  EXPECT_DOUBLE_EQ(schedule.factor(60), 0.55);
  EXPECT_DOUBLE_EQ(schedule.factor(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(5000), 0.1);
  for (std::int64_t done = 10; done < 110; ++done) EXPECT_GT(schedule.factor(done), schedule.factor(done + 1));
}

TEST(RateSchedule, LinearFallsByEqualSteps) {
  const RateSchedule schedule(with("linear", {{P::steps, 4}}), 1, 0);
  for (std::int64_t done = 0; done <= 4; ++done)
    EXPECT_DOUBLE_EQ(schedule.factor(done), 1 - static_cast<double>(done) / 4);
}

TEST(RateSchedule, OfWarmUpAloneEndsAtItsFinalFactor) {
  const RateSchedule schedule(with("cosine", {{P::warmup, 3}, {P::steps, 3}, {P::min_lr, 0.5}}), 1, 0);
  EXPECT_DOUBLE_EQ(schedule.factor(2), 0.75);
  EXPECT_DOUBLE_EQ(schedule.factor(3), 0.5);
}

TEST(RateSchedule, KeelsOwnHaveTheFactorsThatTheyAlwaysHad) {
  const double warmup = 100, steps = 2000, end = 1e-4 / 1e-3;
  ScheduleSettings settings = with("cosine", {{P::warmup, warmup}, {P::steps, steps}, {P::min_lr, 1e-4}});
  const RateSchedule cosine(settings, 1e-3, 2000);
  settings.type = find_schedule("linear");
  const RateSchedule linear(settings, 1e-3, 2000);
  for (std::int64_t done = 0; done < 2100; ++done) {
    const auto t = static_cast<double>(done);
    const double progress = (t - warmup) / (steps - warmup);
    const auto expected = [&](double remaining) {
      return t < warmup ? (t + 1) / (warmup + 1) : t >= steps ? end : end + (1 - end) * remaining;
    };
    EXPECT_EQ(cosine.factor(done), expected(0.5 * (1 + std::cos(std::numbers::pi * progress))));
    EXPECT_EQ(linear.factor(done), expected(1 - progress));
  }
}

TEST(RateSchedule, EveryScheduleIsFiniteAndAFunctionOfTheStepAlone) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    SCOPED_TRACE(kind.name);
    const ScheduleSettings settings = working(kind);
    ASSERT_EQ(complaint_of(settings, kBase, kSteps), "");
    const RateSchedule schedule(settings, kBase, kSteps);
    std::vector<double> factors;
    for (std::int64_t done = 0; done < kSteps; ++done) {
      factors.push_back(schedule.factor(done));
      EXPECT_TRUE(std::isfinite(factors.back()) && factors.back() >= 0) << done;
    }
    // Whoever resumes makes the schedule anew and asks for any step first.
    std::mt19937 random(1);
    for (int i = 0; i < 50; ++i) {
      const auto done = static_cast<std::int64_t>(random() % kSteps);
      EXPECT_EQ(RateSchedule(settings, kBase, kSteps).factor(done), factors[static_cast<std::size_t>(done)]) << done;
    }
  }
}

TEST(RateSchedule, SettlesWhereItSaysSo) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    SCOPED_TRACE(kind.name);
    const RateSchedule schedule(working(kind), kBase, kSteps);
    const std::int64_t from = schedule.settles();
    if (from == RateSchedule::kNever) continue;
    for (std::int64_t done = from; done < from + 500; ++done) EXPECT_EQ(schedule.factor(done), schedule.factor(from));
  }
}

TEST(RateSchedule, AWarmUpRisesInEqualStepsAndEndsAtThePeakWithoutAJump) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (kind.find(P::warmup) == nullptr || kind.find(P::warmup_type) != nullptr || kind.name == "normal_decay" ||
        kind.name == "polynomial_decay_layerwise")
      continue;
    SCOPED_TRACE(kind.name);
    ScheduleSettings settings = working(kind);
    settings[P::warmup] = {50};
    settings[P::constant] = {0};
    const RateSchedule schedule(settings, kBase, kSteps);
    const double step = schedule.factor(1) - schedule.factor(0);
    EXPECT_GT(step, 0);
    for (std::int64_t done = 1; done < 50; ++done)
      EXPECT_NEAR(schedule.factor(done) - schedule.factor(done - 1), step, 1e-14) << done;
    EXPECT_NEAR(schedule.factor(50), 1, 1e-3);
    EXPECT_LE(std::abs(schedule.factor(50) - schedule.factor(49)), step + 1e-14);
  }
}

TEST(RateSchedule, ARatioOfAllStepsIsTheSameAsItsCount) {
  for (const std::string_view name : {"cosine", "constant", "linear_with_warmup", "WarmupLR"}) {
    ScheduleSettings settings = with(name, {{P::warmup, 28}});
    const RateSchedule counted(settings, kBase, kSteps);
    settings[P::warmup] = {0.07, Form::ratio};  // 28.000000000000004 of 400 in doubles
    const RateSchedule ratio(settings, kBase, kSteps);
    for (std::int64_t done = 0; done < kSteps; ++done) EXPECT_EQ(counted.factor(done), ratio.factor(done)) << name;
  }
  // Rounded up, so that a small ratio is a warm-up of one step at least.
  EXPECT_EQ(RateSchedule({with("linear_with_warmup", {{P::steps, 90}})}, 1, 0).factor(0), 1);
  ScheduleSettings small = with("linear_with_warmup", {{P::steps, 90}});
  small[P::warmup] = {0.001, Form::ratio};
  EXPECT_EQ(RateSchedule(small, 1, 0).factor(0), 0);
}

TEST(RateSchedule, AbsoluteRatesAreWhatTheBaseRateMakesOfTheFactor) {
  for (const double base : {1e-5, 0.003, 7.0}) {
    const auto cyclic = with("CyclicLR", {{P::base_lr, 1e-6}, {P::max_lr, 0.5}, {P::step_size_up, 10}});
    const RateSchedule schedule(cyclic, base, kSteps);
    EXPECT_DOUBLE_EQ(base * schedule.factor(0), 1e-6);
    EXPECT_DOUBLE_EQ(base * schedule.factor(10), 0.5);
    const RateSchedule follows(with("OneCycleLR", {}), base, kSteps);  // max_lr: auto
    EXPECT_DOUBLE_EQ(base * follows.factor(119), base);
  }
}

TEST(RateSchedule, ASequenceIsItsPartsOneAfterTheOther) {
  ScheduleSettings settings = default_schedule("sequence");
  settings.parts = {with("LinearLR", {{P::total_iters, 50}}), with("ExponentialLR", {{P::gamma, 0.9}}),
                    default_schedule("CosineAnnealingLR")};
  settings.milestones = {50, 180};
  const RateSchedule whole(settings, kBase, kSteps);
  const std::int64_t begins[] = {0, 50, 180, kSteps};
  for (std::size_t part = 0; part < 3; ++part) {
    // T_max of the last one is `auto`: the steps that are left for it.
    const RateSchedule alone(settings.parts[part], kBase, begins[part + 1] - begins[part]);
    for (std::int64_t done = begins[part]; done < begins[part + 1]; ++done)
      EXPECT_EQ(whole.factor(done), alone.factor(done - begins[part])) << done;
  }
  EXPECT_NEAR(whole.factor(kSteps), 0, 1e-15);
}

TEST(RateSchedule, AProductIsTheProductOfItsParts) {
  ScheduleSettings settings = default_schedule("product");
  settings.parts = {with("StepLR", {{P::step_size, 30}}), with("cosine", {{P::warmup, 20}}),
                    with("ConstantLR", {{P::factor, 0.5}, {P::total_iters, 70}})};
  const RateSchedule whole(settings, kBase, kSteps);
  for (std::int64_t done = 0; done < kSteps; ++done) {
    double product = 1;
    for (const ScheduleSettings& part : settings.parts) product *= RateSchedule(part, kBase, kSteps).factor(done);
    EXPECT_EQ(whole.factor(done), product);
  }
}

TEST(RateSchedule, ASequenceOfProductsIsBoth) {
  ScheduleSettings product = default_schedule("product");
  product.parts = {with("ExponentialLR", {{P::gamma, 0.9}}), with("StepLR", {{P::step_size, 3}})};
  ScheduleSettings settings = default_schedule("sequence");
  settings.parts = {default_schedule("constant"), product};
  settings.milestones = {5};
  const RateSchedule schedule(settings, kBase, kSteps);
  EXPECT_EQ(schedule.factor(4), 1);
  EXPECT_EQ(schedule.factor(5), 1);
  EXPECT_DOUBLE_EQ(schedule.factor(9), std::pow(0.9, 4) * 0.1);
}

TEST(RateSchedule, MomentumGoesDownWhereTheRateGoesUp) {
  for (const std::string_view name : {"CyclicLR", "OneCycleLR", "OneCycle"}) {
    SCOPED_TRACE(name);
    ScheduleSettings settings = working(schedule_kinds()[static_cast<std::size_t>(find_schedule(name))]);
    const RateSchedule schedule(settings, kBase, kSteps);
    ASSERT_TRUE(schedule.cycles_momentum());
    EXPECT_DOUBLE_EQ(*schedule.momentum(0), settings[P::max_momentum].number);
    for (std::int64_t done = 1; done < kSteps; ++done) {
      const double rate = schedule.factor(done) - schedule.factor(done - 1);
      const double momentum = *schedule.momentum(done) - *schedule.momentum(done - 1);
      EXPECT_LE(rate * momentum, 1e-18) << done;
    }
    settings[P::cycle_momentum] = {0};
    EXPECT_FALSE(RateSchedule(settings, kBase, kSteps).momentum(3).has_value());
  }
  EXPECT_FALSE(RateSchedule(default_schedule("cosine"), kBase, kSteps).momentum(3).has_value());
}

TEST(RateSchedule, LayerDecayIsAPowerOfTheDistanceFromTheOutput) {
  const auto settings = with("polynomial_decay_layerwise", {{P::warmup, 10}, {P::layer_decay, 0.5}});
  const RateSchedule schedule(settings, kBase, kSteps);
  EXPECT_EQ(schedule.layer_factor(5, 5), 1);
  EXPECT_EQ(schedule.layer_factor(2, 5), 0.125);
  EXPECT_EQ(RateSchedule(default_schedule("cosine"), kBase, kSteps).layer_factor(0, 5), 1);
}

TEST(RateSchedule, WhatDoesNotFitTogetherIsRefused) {
  const std::pair<ScheduleSettings, std::string> cases[] = {
      {with("StepLR", {{P::step_size, 0}}), "step_size: expects a whole number >= 1, got 0"},
      {with("StepLR", {{P::step_size, 2.5}}), "step_size: expects a whole number >= 1, got 2.5"},
      {with("ExponentialLR", {{P::gamma, -1}}), "gamma: expects a number > 0, got -1"},
      {with("LinearLR", {{P::start_factor, 0}}), "start_factor: expects a number above 0 to 1, got 0"},
      {with("OneCycleLR", {{P::pct_start, 1.5}}), "pct_start: expects a number from 0 to 1, got 1.5"},
      {with("OneCycleLR", {{P::anneal, 2}}), "anneal: expects cos or linear, got 2"},
      {with("OneCycleLR", {{P::steps, 399}}), "steps: OneCycleLR ends after 399 steps, and the run has 400"},
      {with("CyclicLR", {{P::base_lr, 1}}), "base_lr: is above max_lr"},
      {with("cosine", {{P::warmup, 401}}), "warmup: 401 warm-up steps do not fit into the schedule's 400"},
      {with("cosine", {{P::min_lr, 0.02}}),
       "min_lr: 0.02 is above optimizer.lr 0.01; the rate falls from lr to min_lr"},
      {with("cosine_with_min_lr", {{P::min_lr, 0.001}, {P::min_ratio, 0.1}}),
       "min_ratio: says the same as min_lr; give one of the two"},
      {with("wsd", {{P::warmup, 200}, {P::decay, 201}}),
       "decay: warm-up and decay take 401 steps, and the schedule has 400"},
      {with("sqrt_decay", {}), "constant: either constant or warmup must be above 0, and not both"},
      {default_schedule("product"), "schedules: lists no schedule"},
  };
  for (const auto& [settings, message] : cases) EXPECT_EQ(complaint_of(settings, kBase, kSteps), message);
  ScheduleSettings falling = default_schedule("MultiStepLR");
  falling.milestones = {30, 20};
  EXPECT_EQ(complaint_of(falling, kBase, kSteps), "milestones: must rise");
  ScheduleSettings sequence = default_schedule("sequence");
  sequence.parts = {default_schedule("constant"), with("cosine", {{P::warmup, 350}})};
  EXPECT_EQ(complaint_of(sequence, kBase, kSteps),
            "milestones: expects 1 steps, one between each of the 2 schedules and the next, got 0");
  sequence.milestones = {100};
  EXPECT_EQ(complaint_of(sequence, kBase, kSteps),
            "schedules[1].warmup: 350 warm-up steps do not fit into the schedule's 300");
  ScheduleSettings product = default_schedule("product");
  product.parts = {default_schedule("OneCycleLR"), default_schedule("OneCycleLR")};
  EXPECT_EQ(complaint_of(product, kBase, kSteps),
            "schedules: more than one of them cycles the momentum; which one shall hold?");
  EXPECT_THROW(RateSchedule(falling, kBase, kSteps), Error);
  EXPECT_THROW(RateSchedule(default_schedule("cosine"), 0, kSteps), Error);
}

TEST(RateSchedule, ATotalThatIsNeededAndNotKnownIsAskedFor) {
  EXPECT_EQ(complaint_of(default_schedule("cosine"), kBase, 0),
            "steps: is the number of all steps, which is not known here; give it");
  EXPECT_EQ(complaint_of(default_schedule("CosineAnnealingLR"), kBase, 0),
            "T_max: is the number of all steps, which is not known here; give it");
  ScheduleSettings ratio = default_schedule("constant");
  ratio[P::warmup] = {0.1, Form::ratio};
  EXPECT_EQ(complaint_of(ratio, kBase, 0), "warmup: is a ratio of all steps, which are not known here; give a number");
  EXPECT_EQ(complaint_of(with("StepLR", {{P::step_size, 3}}), kBase, 0), "");
}

TEST(RateSchedule, AScheduleThatEndsHasNoRateAfterwards) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    const RateSchedule schedule(working(kind), kBase, kSteps);
    if (!kind.ends) {
      EXPECT_TRUE(std::isfinite(schedule.factor(10 * kSteps))) << kind.name;
      continue;
    }
    EXPECT_TRUE(std::isfinite(schedule.factor(kSteps))) << kind.name;
    EXPECT_THROW(schedule.factor(kSteps + 1), Error) << kind.name;
  }
}

TEST(ScheduleTable, NamesAndAliasesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const ScheduleKind& kind : schedule_kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    for (const std::string_view alias : schedule_words(kind.aliases)) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(schedule_kinds()[static_cast<std::size_t>(find_schedule(alias))].name, kind.name);
    }
  }
  std::set<std::string_view> parameters;
  for (std::size_t i = 0; i < kScheduleParameters; ++i) {
    const ScheduleParameterRow& row = schedule_parameter(static_cast<P>(i));
    EXPECT_TRUE(parameters.insert(row.name).second) << row.name;
    for (const std::string_view words : {row.aliases, row.ratio_aliases})
      for (const std::string_view alias : schedule_words(words)) EXPECT_TRUE(parameters.insert(alias).second) << alias;
  }
}

TEST(ScheduleTable, AnUnknownNameSaysTheNearest) {
  const auto message_of = [](std::string_view name) {
    try {
      find_schedule(name);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(message_of("CosineWithWarmUp"),
            "there is no schedule 'CosineWithWarmUp', did you mean 'CosineWithWarmup'?");
  EXPECT_EQ(message_of("OneCicle"), "there is no schedule 'OneCicle', did you mean 'OneCycle'?");
  EXPECT_TRUE(message_of("zigzag").starts_with("there is no schedule 'zigzag'; there are cosine, constant, "));
}

TEST(ScheduleTable, DefaultsReadBackAsTheyAreWritten) {
  for (const ScheduleKind& kind : schedule_kinds())
    for (const ScheduleUse& use : kind.parameters)
      if (!use.standard.empty()) {
        EXPECT_EQ(schedule_value_text(use, read_schedule_value(use, use.standard)), use.standard) << kind.name;
      }
}

TEST(ScheduleTable, ANumberWithAPointIsARatioAndAWholeOneACount) {
  const ScheduleUse warmup = {P::warmup, "0"};
  EXPECT_EQ(read_schedule_value(warmup, "1"), (ScheduleValue{1, Form::number}));
  EXPECT_EQ(read_schedule_value(warmup, "1.0"), (ScheduleValue{1, Form::ratio}));
  EXPECT_EQ(read_schedule_value(warmup, "5e-2"), (ScheduleValue{0.05, Form::ratio}));
  for (const char* text : {"1.5", "100.0", "-1", "auto", "", "1x", "nan", "inf", "1e999"})
    EXPECT_THROW(read_schedule_value(warmup, text), Error) << text;
  for (const char* text : {"1", "1.0", "0.25", "17"})
    EXPECT_EQ(schedule_value_text(warmup, read_schedule_value(warmup, text)), text);
}

}  // namespace
}  // namespace keel
