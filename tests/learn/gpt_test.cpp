// learn/gpt.cpp, the GPT in one file, against keel: the same task, gradients and losses from the same weights.

#include <gtest/gtest.h>

// What the file includes, so that it can be read inside a namespace below.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/data/addition.h"
#include "keel/data/token_batch.h"
#include "keel/models/model_keys.h"
#include "keel/nn/state.h"
#include "keel/tasks/language.h"
#include "keel/trainer/trainer.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace one_file {
#include "learn/gpt.cpp"
}

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

Config config_of_the_file(std::vector<std::string> more) {
  return load_config(KEEL_SOURCE_DIR "/learn/gpt.yaml", more);
}

// Gives the file's parameters keel's initial numbers.
void take_over(const NamedTensors& state) {
  one_file::parameters.clear();
  one_file::gpt(std::vector<int>(one_file::kLength));  // makes them
  ASSERT_EQ(one_file::parameters.size(), state.size());
  for (const auto& [name, tensor] : state) {
    one_file::Parameter& parameter = one_file::parameters.at(name);
    const std::vector<float> values = tensor.to_vector<float>();
    ASSERT_EQ(parameter.value.size(), values.size()) << name;
    parameter.value = values;
  }
}

// The sums that keel trains on in a step (the first has number 0).
std::vector<std::string> examples_of(const Config& config, std::int64_t step) {
  const AdditionTask task(static_cast<int>(config.integer("data.digits")));
  std::vector<std::string> examples;
  for (std::int64_t row = 0; row < config.batch.global; ++row) {
    const Addends pair = task.training_pair(config.data.seed, step, row);
    examples.push_back(task.prompt(pair) + task.answer(pair));
  }
  return examples;
}

TEST(OneFile, HasKeelsTask) {
  const AdditionTask task(2);
  for (int a = 0; a < 100; ++a)
    for (int b = 0; b < 100; ++b) {
      EXPECT_EQ(one_file::held_out(a, b), AdditionTask::held_out({a, b})) << a << ' ' << b;
      EXPECT_EQ(one_file::example(a, b), task.prompt({a, b}) + task.answer({a, b}));
    }
  EXPECT_EQ(one_file::kQuestion, static_cast<int>(task.prompt({0, 0}).size()));
  EXPECT_EQ(one_file::kLength, task.block());
  const std::vector<std::uint32_t> tokens = task.tokenizer()->encode("47+58=501\n");
  EXPECT_EQ(one_file::encode("47+58=501\n"), std::vector<int>(tokens.begin(), tokens.end()));
}

// Its normal numbers are others than keel's, but as many, and as large.
TEST(OneFile, HasKeelsParametersAndTheirInitialSize) {
  const Config config = config_of_the_file({"run=unused"});
  const auto made = model_spec(config, one_file::kCharacters.size())->make_decoder();
  CausalModel& model = *made;
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1), {.seed = config.seed});
  const auto mean_square = [](const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * value;
    return sum / static_cast<double>(values.size());
  };
  one_file::parameters.clear();
  one_file::gpt(std::vector<int>(one_file::kLength));  // makes them
  const NamedTensors state = state_dict(model);
  ASSERT_EQ(one_file::parameters.size(), state.size());
  for (const auto& [name, tensor] : state) {
    const std::vector<float>& values = one_file::parameters.at(name).value;
    ASSERT_EQ(values.size(), static_cast<std::size_t>(tensor.numel())) << name;
    const double expected = mean_square(tensor.to_vector<float>());
    EXPECT_NEAR(mean_square(values), expected, 0.2 * expected) << name;
  }
}

TEST(OneFile, HasKeelsLossAndGradients) {
  const Config config = config_of_the_file({"run=unused"});
  const Context context = testing::context(1);
  const auto made = model_spec(config, one_file::kCharacters.size())->make_decoder();
  CausalModel& model = *made;
  const std::vector<FlatBuffer> buffers = materialize(model, context, {.seed = config.seed});
  take_over(state_dict(model));

  const Batch batch = AdditionTask(2).training_loader(context, config.batch.global, config.data.seed).load_all(0);
  Forward pass;
  const CrossEntropyLoss expected = model.loss(batch[kInputIds], batch[kLabels], pass);
  backward(expected.loss);

  std::string inputs, targets;
  for (const std::string& text : examples_of(config, 0)) {
    inputs += text.substr(0, one_file::kLength);
    targets += std::string(one_file::kQuestion - 1, ' ') + text.substr(one_file::kQuestion);
  }
  const float loss = one_file::cross_entropy(one_file::gpt(one_file::encode(inputs)), one_file::encode(targets));
  one_file::backward();
  EXPECT_NEAR(loss, expected.loss.value().item(), 1e-6);
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    if (name == "lm_head.weight") return;  // tied to wte.weight
    const std::vector<float>& grad = one_file::parameters.at(name).grad;
    EXPECT_LT(relative_error({grad.begin(), grad.end()}, doubles(parameter.grad())), 1e-5) << name;
  });
}

TEST(OneFile, HasKeelsLosses) {
  constexpr std::int64_t kSteps = 40;
  const testing::TemporaryFolder place;
  const Config config = config_of_the_file({"run=" + (place / "run"), concat("steps=", kSteps),
                                            concat("scheduler.steps=", one_file::kSteps), "eval.every=0"});
  testing::Recorder keel;
  train(config, keel);
  ASSERT_EQ(keel.losses.size(), static_cast<std::size_t>(kSteps));

  const auto made = model_spec(config, one_file::kCharacters.size())->make_decoder();
  CausalModel& model = *made;
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1), {.seed = config.seed});
  take_over(state_dict(model));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const double loss = one_file::train_step(static_cast<int>(step) + 1, examples_of(config, step));
    EXPECT_NEAR(loss, keel.losses[static_cast<std::size_t>(step)], 1e-4) << "step " << step + 1;
  }
}

TEST(OneFile, LearnsFromItsOwnSums) {
  one_file::parameters.clear();
  const auto mean_loss = [](int first, int last) {
    double sum = 0;
    for (int step = first; step <= last; ++step)
      sum += one_file::train_step(step, one_file::random_examples(one_file::kBatch, false));
    return sum / (last - first + 1);
  };
  const double before = mean_loss(1, 5);
  mean_loss(6, 55);
  EXPECT_LT(mean_loss(56, 60), before / 1.8);
}

// What it writes is what its logits say of the finished text. So nothing depends on what stands behind a character.
TEST(OneFile, WritesTheLikeliestCharacterAgainAndAgain) {
  const std::vector<std::string> asked = {one_file::example(47, 58), one_file::example(3, 99)};
  const std::vector<std::string> written = one_file::answer(asked);
  std::string read;
  for (const std::string& text : written) read += text.substr(0, one_file::kLength);
  one_file::Tensor& logits = one_file::gpt(one_file::encode(read));
  for (std::size_t n = 0; n < asked.size(); ++n) {
    EXPECT_EQ(written[n].substr(0, one_file::kQuestion), asked[n].substr(0, one_file::kQuestion));
    for (int i = one_file::kQuestion; i < one_file::kLength; ++i) {
      const int token = one_file::encode(written[n])[static_cast<std::size_t>(i)];
      const float* row = logits.row(static_cast<int>(n) * one_file::kLength + i - 1);
      EXPECT_EQ(*std::max_element(row, row + logits.cols), row[token]) << written[n] << " at " << i;
    }
  }
}

}  // namespace
}  // namespace keel
