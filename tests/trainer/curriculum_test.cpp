// Sequences that grow with the steps.

#include "keel/trainer/curriculum.h"

#include <gtest/gtest.h>

#include "keel/data/batch.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<std::int64_t> lengths_of(const CurriculumConfig& config, std::int64_t steps, std::int64_t whole) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t step = 1; step <= steps; ++step) lengths.push_back(length_of_step(config, step, whole));
  return lengths;
}

using Lengths = std::vector<std::int64_t>;

// By hand: 8 + 24 step / 10 and 8 + 24 sqrt(step / 10), down to a multiple of 8.
TEST(Curriculum, GrowsInProportionToStepsOrToARootOfThem) {
  CurriculumConfig config{.type = CurriculumConfig::Type::fixed_linear, .steps = 10};
  EXPECT_EQ(lengths_of(config, 12, 32), (Lengths{8, 8, 8, 16, 16, 16, 24, 24, 24, 32, 32, 32}));
  config.type = CurriculumConfig::Type::fixed_root;
  EXPECT_EQ(lengths_of(config, 12, 32), (Lengths{8, 16, 16, 16, 24, 24, 24, 24, 24, 32, 32, 32}));
  config.max_length = 20;
  config.multiple = 4;
  EXPECT_EQ(lengths_of(config, 11, 32), (Lengths{8, 12, 12, 12, 16, 16, 16, 16, 16, 20, 20}));
  EXPECT_EQ(lengths_of({}, 2, 32), (Lengths{32, 32}));
  config = {.type = CurriculumConfig::Type::fixed_linear, .max_length = 21, .steps = 10};
  EXPECT_EQ(lengths_of(config, 11, 32), (Lengths{8, 8, 8, 8, 8, 8, 16, 16, 16, 21, 21})) << "the last is no multiple";
}

TEST(Curriculum, JumpsWhereAListSays) {
  const CurriculumConfig config{.type = CurriculumConfig::Type::fixed_discrete, .lengths = {4, 16, 9}, .until = {2, 3}};
  EXPECT_EQ(lengths_of(config, 6, 16), (Lengths{4, 4, 16, 9, 9, 9}));
}

struct SourceOfNothing : BatchSource {
  std::int64_t rows(std::int64_t) const override { return 1; }
  Batch load(std::int64_t, Rows) const override { return {}; }
};

TEST(Curriculum, IsOfTasksWhoseRowsAreSequences) {
  const auto source = std::make_shared<SourceOfNothing>();
  CurriculumConfig config{.type = CurriculumConfig::Type::fixed_linear, .min_length = 2, .steps = 10};
  const auto refusal = [&](std::int64_t whole) { return error_of([&] { with_curriculum(config, source, whole); }); };
  for (const std::int64_t none : {0, 1})
    EXPECT_EQ(refusal(none), "curriculum.type: the rows of this task are no sequences of a known length");
  EXPECT_EQ(refusal(2), "");
  config.max_length = 17;
  EXPECT_EQ(refusal(17), "");
  EXPECT_EQ(refusal(16), "curriculum: a length of 17 is longer than the task's sequences, which have 16 positions");
  config.max_length = 0;
  config.min_length = 16;
  EXPECT_EQ(refusal(16), "");
  EXPECT_EQ(refusal(15), "curriculum: a length of 16 is longer than the task's sequences, which have 15 positions");
  config = {.type = CurriculumConfig::Type::fixed_discrete, .lengths = {4, 9, 8}, .until = {2, 3}};
  EXPECT_EQ(refusal(9), "");
  EXPECT_EQ(refusal(8), "curriculum: a length of 9 is longer than the task's sequences, which have 8 positions");
  config.type = CurriculumConfig::Type::none;
  EXPECT_EQ(with_curriculum(config, source, 0), source);
}

TEST(Curriculum, HasStagesInPartsOfTheRun) {
  const TemporaryFolder place;
  const auto trained = [&](const char* run, const char* curriculum) {
    const Config config = small_run(place, run, {concat("curriculum=", curriculum)});
    train_by(1, config);
    return weights_of(config);
  };
  EXPECT_TRUE(trained("parts", "{type: fixed_discrete, lengths: [4, 8, 16], until: [25%, 6]}") ==
              trained("steps", "{type: fixed_discrete, lengths: [4, 8, 16], until: [3, 6 steps]}"));
  EXPECT_TRUE(trained("part", "{type: fixed_linear, min_length: 4, multiple: 4, steps: 75%}") ==
              trained("step", "{type: fixed_linear, min_length: 4, multiple: 4, steps: 9}"));
}

Config growing_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), "curriculum={type: fixed_linear, min_length: 4, multiple: 4, steps: 9}");
  return small_run(place, run, more);
}

std::vector<std::int64_t> tokens_of(const Config& config) {
  std::vector<std::int64_t> tokens;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("lr")) tokens.push_back(record.at("tokens").integer());
  return tokens;
}

TEST(Curriculum, TrainsOnTheLengthOfEachStepFromTheFirstOn) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run",
                {"curriculum={type: fixed_discrete, lengths: [2, 5, 16], until: [1, 3]}", "steps=4", "model.layers=1"});
  train_by(1, config);
  EXPECT_EQ(tokens_of(config), (Lengths{6 * 2, 6 * 7, 6 * 12, 6 * 28}));
}

TEST(Curriculum, TrainsOnAsManyTokensAsItSaysAndGoesOnToTheSameBits) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    std::string bits;
    for (const char* stage :
         {"strategy=ddp-fp32", "strategy=zero1-fp32", "strategy=zero2-fp32", "strategy=zero3-fp32"}) {
      const Config config = growing_run(place, stage + 9, {stage});
      train_by(n, config);
      if (bits.empty()) bits = weights_of(config);
      EXPECT_TRUE(weights_of(config) == bits) << stage << ' ' << n;
    }
    // 4 + 12 step / 9, down to a multiple of 4.
    Lengths expected;
    std::int64_t sum = 0;
    for (const int length : {4, 4, 8, 8, 8, 12, 12, 12, 16, 16, 16, 16}) expected.push_back(sum += 6 * length);
    EXPECT_EQ(tokens_of(growing_run(place, "ddp-fp32")), expected) << n;
    train_by(n, growing_run(place, "resumed", {"strategy=zero1-fp32"}), 5);
    train_by(n, growing_run(place, "resumed", {"strategy=zero3-fp32", "resume=auto"}));
    EXPECT_TRUE(weights_of(growing_run(place, "resumed")) == bits) << n;
  }
}

TEST(Curriculum, SaysWhatDoesNotFit) {
  const TemporaryFolder place;
  const auto told = [&](const char* curriculum) {
    return error_of([&] {
      TrainObserver silent;
      train(small_run(place, "run", {concat("curriculum=", curriculum)}), silent);
    });
  };
  const auto expect_told = [&](const char* curriculum, const char* words) {
    EXPECT_NE(told(curriculum).find(words), std::string::npos) << told(curriculum);
  };
  expect_told("{type: fixed_linear}", "curriculum.steps");
  expect_told("{type: fixed_linear, steps: 4, min_length: 6, multiple: 4}",
              "must be a multiple of curriculum.multiple, 4");
  expect_told("{type: fixed_linear, steps: 4, max_length: 4}", "must not be below curriculum.min_length, 8");
  expect_told("{type: fixed_linear, steps: 4, max_length: 24}", "longer than the task's sequences, which have 16");
  expect_told("{type: fixed_discrete, lengths: [4, 8], until: []}", "a step for each of the 2 lengths but the last");
  expect_told("{type: fixed_discrete, lengths: [4, 8, 9], until: [5, 5]}", "expects steps that increase");
  expect_told("{type: fixed_discrete, lengths: [4, 8, 9], until: [50%, 5]}",
              "curriculum.until: expects steps that increase; 50% ends with step 6, and 5 with step 5");
  expect_told("{type: fixed_discrete, lengths: [4, 0], until: [5]}", "curriculum.lengths");
}

TEST(Curriculum, OfDeepSpeedIsRead) {
  const TemporaryFolder place;
  const std::string file = place / "ds.json";
  const auto read = [&](const std::string& section) {
    write_text_file(file, concat("{\"train_batch_size\": 4, \"curriculum_learning\": {", section, "}}"));
    return load_any_config(keel_keys(), {file}, {"data.type=addition", "steps=9"}).curriculum;
  };
  const std::string kind =
      "\"enabled\": true, \"curriculum_type\": \"seqlen\", \"min_difficulty\": 8, "
      "\"max_difficulty\": 64, \"schedule_type\": ";
  EXPECT_EQ(read(kind + "\"fixed_root\", \"schedule_config\": {\"total_curriculum_step\": 7, \"difficulty_step\": 4, "
                        "\"root_degree\": 3}"),
            (CurriculumConfig{.type = CurriculumConfig::Type::fixed_root,
                              .min_length = 8,
                              .max_length = 64,
                              .steps = 7,
                              .multiple = 4,
                              .root = 3}));
  EXPECT_EQ(read(kind + "\"fixed_discrete\", \"schedule_config\": {\"difficulty\": [8, 64], \"max_step\": [5]}"),
            (CurriculumConfig{.type = CurriculumConfig::Type::fixed_discrete, .lengths = {8, 64}, .until = {5}}));
  EXPECT_EQ(read("\"enabled\": false, \"curriculum_type\": \"seqlen\""), CurriculumConfig());
  const auto told = [&](const std::string& section) { return error_of([&] { read(section); }); };
  EXPECT_NE(
      told("\"enabled\": true, \"schedule_type\": \"fixed_linear\", \"curriculum_type\": \"vocab\"").find("seqlen"),
      std::string::npos);
  EXPECT_NE(told("\"enabled\": true").find("curriculum_learning: is enabled and has no schedule_type"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
