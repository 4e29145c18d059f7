#pragma once
// What holds of runs of every task: the same bits in every stage of sharding, the same answers by any number of ranks.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/predict_run.h"
#include "tests/trainer/run_support.h"

namespace keel::testing {

inline const Tell kToldNothing = [](LogLevel, std::string_view) {};

// `make(name, settings)` is the Config of a run of that name, with settings of its own. Trains it by n ranks in every
// stage, and once more with an end that is asked for after some steps and another stage from there on.
template <class MakeRun>
void expect_same_bits_in_every_stage(int n, std::int64_t ends_after, const MakeRun& make) {
  std::vector<double> losses;
  std::string bits;
  for (const char* stage : {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"}) {
    const Config config = make(stage, {concat("strategy=", stage)});
    const auto told = train_by(n, config);
    if (bits.empty()) {
      losses = told[0]->losses;
      bits = weights_of(config);
    }
    EXPECT_EQ(told[0]->losses, losses) << stage << " by " << n;
    EXPECT_TRUE(weights_of(config) == bits) << stage << " by " << n;
  }
  const auto begun = train_by(n, make("resumed", {"strategy=zero1-fp32"}), ends_after);
  const Config resumed = make("resumed", {"strategy=zero3-fp32", "resume=auto"});
  const auto told = train_by(n, resumed);
  // A run that had not ended, or began anew, would have the same weights. Several ranks agree on an end in the next
  // step.
  const auto taken = ends_after + (n > 1 ? 1 : 0);
  ASSERT_LT(taken, std::ssize(losses)) << "nothing is left to do by " << n;
  EXPECT_EQ(begun[0]->losses, std::vector<double>(losses.begin(), losses.begin() + taken)) << "begun by " << n;
  EXPECT_EQ(told[0]->losses, std::vector<double>(losses.begin() + taken, losses.end())) << "resumed by " << n;
  EXPECT_TRUE(weights_of(resumed) == bits) << "resumed by " << n;
}

// What a run's evaluation on its first validation set says.
inline std::vector<NamedNumber> evaluated_by(int n, const std::string& run) {
  std::vector<NamedNumber> values;
  run_ranks(n, [&](Communicator& group) {
    TrainedModel trained({.path = run}, group, kToldNothing);
    const EvaluatedRun all = evaluate_run(trained);
    if (group.rank() == 0) values = all.sets.at(0).values;
  });
  return values;
}

// What a run predicts of a file.
inline std::string predicted_by(int n, const std::string& run, const std::string& input) {
  const std::string out = concat(run, "_predicts_by_", n);
  run_ranks(n, [&](Communicator& group) {
    TrainedModel trained({.path = run}, group, kToldNothing);
    predict_run(trained, {.input = input, .out = out, .replaces = true});
  });
  return read_text_file(out);
}

inline double number_named(const std::vector<NamedNumber>& values, std::string_view name) {
  std::string names;
  for (const NamedNumber& value : values) {
    if (value.name == name) return value.value;
    names += concat(' ', value.name);
  }
  ADD_FAILURE() << "no " << name << " among" << names;
  return std::nan("");
}

struct RunAnswers {
  std::vector<NamedNumber> evaluated;
  std::string predicted;  // a line for each example
};
// Those of one rank, which several give to the bit.
inline RunAnswers expect_same_answers_by_any_ranks(const std::string& run, const std::string& input) {
  RunAnswers alone = {evaluated_by(1, run), predicted_by(1, run, input)};
  EXPECT_FALSE(alone.evaluated.empty());
  EXPECT_FALSE(alone.predicted.empty());
  for (const int n : {2, 3, 4}) {
    const std::vector<NamedNumber> values = evaluated_by(n, run);
    EXPECT_EQ(values.size(), alone.evaluated.size()) << n;
    for (std::size_t i = 0; i < std::min(values.size(), alone.evaluated.size()); ++i) {
      EXPECT_EQ(values[i].name, alone.evaluated[i].name) << i << " by " << n;
      EXPECT_EQ(values[i].value, alone.evaluated[i].value) << values[i].name << " by " << n;
    }
    EXPECT_EQ(predicted_by(n, run, input), alone.predicted) << n;
  }
  return alone;
}

}  // namespace keel::testing
