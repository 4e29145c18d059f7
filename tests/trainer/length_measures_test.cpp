// The numbers at which lengths begin to be other ones.

#include <gtest/gtest.h>

#include "keel/data/batch.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "keel/trainer/length.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

TEST(LengthMeasures, OfStepsHaveAsManyAsADoubleCounts) {
  EXPECT_EQ(Length::parse("9007199254740992").steps(), 9007199254740992);
  EXPECT_EQ(error_of([] { Length::parse("9007199254740994"); }),
            "expects steps, epochs or a part of the run, such as 500, 0.5 epochs or 10%, got '9007199254740994'");
  EXPECT_EQ(Length::parse("1 STEP").steps(), 1);
  EXPECT_EQ(Length::parse("7  sts").steps(), 7);
  EXPECT_EQ(Length::parse("0 steps").steps(), 0);
  EXPECT_EQ(Length::parse("99.5%").percent(), 99.5);
  EXPECT_EQ(Length::parse("0.25ep").epochs(), 0.25);
}

TEST(LengthMeasures, OfPartsAndEpochsAreThatManySteps) {
  for (const auto& [percent, run, last] : {std::tuple<double, std::int64_t, std::int64_t>{50, 1000, 500},
                                           {1, 1000, 10},
                                           {0.5, 1000, 5},
                                           {100, 999, 999},
                                           {1, 1, 1}}) {
    Length length = Length::of_run(percent);
    EXPECT_FALSE(length.is_measured());
    length.measure(0, run);
    EXPECT_TRUE(length.is_measured());
    EXPECT_EQ(length.last_step(), last) << percent << "% of " << run;
  }
  for (const auto& [epochs, each, last] :
       {std::tuple<double, double, std::int64_t>{1, 7, 7}, {0.5, 7, 4}, {2, 2.5, 5}, {0.25, 1, 1}}) {
    Length length = Length::of_epochs(epochs);
    length.measure(each, 0);
    EXPECT_EQ(length.last_step(), last) << epochs << " of " << each;
  }
}

TEST(LengthMeasures, OfNoneAreDueNever) {
  for (const std::int64_t step : {0, 1, 7}) EXPECT_FALSE(Length().is_due(step)) << step;
  EXPECT_FALSE(Length().is_due_between(-1, 1));
  EXPECT_FALSE(Length().is_due_between(0, 9));
  EXPECT_TRUE(Length(1).is_due(1) && Length(1).is_due(2));
  EXPECT_TRUE(Length(3).is_due_between(2, 4));
  EXPECT_FALSE(Length(3).is_due_between(3, 5));
}

TEST(LengthMeasures, OfARunCountEpochsThatAreOver) {
  EXPECT_EQ(epochs_passed(5, 0), 0);
  EXPECT_EQ(epochs_passed(5, 1), 5);
  EXPECT_EQ(epochs_passed(7, 0.5), 14);
  EXPECT_EQ(epochs_passed(4, 2.5), 1);
  EXPECT_EQ(epochs_passed(5, 2.5), 2);
  EXPECT_EQ(epochs_passed(0, 2.5), 0);
}

Config in_epochs(const std::string& epochs, const std::string& more = "") {
  return parse_config(concat("epochs: ", epochs, "\ndata: {type: text, path: x}\n", more), "c");
}

TEST(LengthMeasures, OfEpochsGiveTheRunItsSteps) {
  const auto steps_of = [](const std::string& epochs, double each) {
    Config config = in_epochs(epochs);
    measure_lengths(config, each, BatchSource::kEndless);
    EXPECT_EQ(config.epoch_steps, each);
    return config.steps;
  };
  EXPECT_EQ(steps_of("3", 1), 3);
  EXPECT_EQ(steps_of("2.5", 4), 10);
  EXPECT_EQ(steps_of("1", 2.5), 3);
  EXPECT_EQ(steps_of("0.5", 1), 1);
  EXPECT_EQ(steps_of("1e-12", 1), 1) << "one at least";
  EXPECT_EQ(steps_of("0.1", 30), 3) << "and not a fourth by rounding";
  EXPECT_EQ(steps_of("9007199254740992", 1), 9007199254740992);
  EXPECT_EQ(error_of([&] { steps_of("9007199254740994", 1); }),
            "epochs: 9.0072e+15 epochs are more than 9007199254740992 steps");
}

TEST(LengthMeasures, AreNoneOfDataWithoutEpochs) {
  const std::string why = ": this data has no epochs, as its rows are drawn without end; give steps instead of epochs";
  const auto refusal = [](Config config, double each, std::int64_t source) {
    return error_of([&] { measure_lengths(config, each, source); });
  };
  EXPECT_EQ(refusal(in_epochs("1"), 0, BatchSource::kEndless), "epochs" + why);
  EXPECT_EQ(refusal(in_epochs("0.5"), 0, BatchSource::kEndless), "epochs" + why);
  const auto in_steps = [](const std::string& more) {
    return parse_config("steps: 9\ndata: {type: text, path: x}\n" + more, "c");
  };
  EXPECT_EQ(refusal(in_steps(""), 0, BatchSource::kEndless), "");
  EXPECT_EQ(refusal(in_steps("eval: {every: 1 epoch}"), 0, BatchSource::kEndless), "eval.every" + why);
  EXPECT_EQ(refusal(in_steps("eval: {every: 1 epoch}"), 1, BatchSource::kEndless), "");
  EXPECT_EQ(refusal(in_steps("tracker: {type: csv, every: 1 epoch}"), 0, BatchSource::kEndless),
            "tracker: csv: every" + why);
  EXPECT_EQ(refusal(in_steps("tracker: {type: csv, every: 1 epoch}"), 1, BatchSource::kEndless), "");
  EXPECT_EQ(refusal(in_steps(""), 0, 9), "");
  EXPECT_EQ(refusal(in_steps(""), 0, 8), "steps: the data ends after 8 steps, and the run has 9");
  EXPECT_EQ(refusal(in_epochs("1"), 9, 9), "");
  EXPECT_EQ(refusal(in_epochs("1"), 9, 8), "epochs: the data ends after 8 steps, and the run has 9");
  EXPECT_EQ(refusal(in_epochs("0.5"), 18, 8), "epochs: the data ends after 8 steps, and the run has 9");
  EXPECT_EQ(refusal(in_epochs("2", "scheduler: {warmup: 9}"), 4, BatchSource::kEndless),
            "scheduler.warmup: 9 warm-up steps do not fit into the schedule's 8, with 8 steps in 2 epochs");
  EXPECT_EQ(refusal(in_epochs("2", "scheduler: {warmup: 8}"), 4, BatchSource::kEndless), "");
  EXPECT_EQ(refusal(in_epochs("1e5", "profile: {steps: 50 epochs}"), 200, BatchSource::kEndless), "");
  EXPECT_EQ(
      refusal(in_epochs("1e5", "profile: {steps: 50.5 epochs}"), 200, BatchSource::kEndless),
      "profile.steps: expects a whole number from 0 to 10000, epochs as in 0.5 epochs, or a part of the run as in "
      "10%, and 50.5 epochs are 10100 steps");
}

}  // namespace
}  // namespace keel
