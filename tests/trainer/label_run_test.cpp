// The tasks of labels of texts, from a file to predictions.

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "keel/runtime/random.h"
#include "tests/error_of.h"
#include "tests/trainer/run_laws.h"

namespace keel {
namespace {

using namespace testing;

constexpr const char* kVerdicts[] = {"fine", "dull", "long", "odd"};

// Texts of one to seven words; the class says whether "fine" is there.
void write_verdicts(const TemporaryFolder& place, int count) {
  std::string table = "text,label,score\n", objects;
  std::vector<float> draws(static_cast<std::size_t>(count) * 8);
  fill_uniform(draws, 5, "verdicts");
  for (int i = 0; i < count; ++i) {
    const float* own = &draws[static_cast<std::size_t>(i) * 8];
    std::string text, words, labels;
    int fine = 0;
    for (int word = 0; word < 1 + static_cast<int>(own[7] * 7); ++word) {
      const int verdict = static_cast<int>(own[word] * 4);
      fine += verdict == 0 ? 1 : 0;
      text += concat(word == 0 ? "" : " ", kVerdicts[verdict]);
      words += concat(word == 0 ? "\"" : ", \"", kVerdicts[verdict], '"');
      labels += concat(word == 0 ? "\"" : ", \"", verdict == 0 ? "GOOD" : "O", '"');
    }
    table += concat(text, ',', fine > 0 ? "yes" : "no", ',', fine, '\n');
    objects += concat("{\"words\": [", words, "], \"labels\": [", labels, "]}\n");
  }
  write_text_file(place / "v.csv", table);
  write_text_file(place / "v.jsonl", objects);
}

Config verdict_run(const TemporaryFolder& place, const std::string& run, const std::string& task,
                   std::vector<std::string> more = {}) {
  const char* file = task == "token_classification" ? "v.jsonl" : "v.csv";
  more.insert(more.begin(),
              {concat("run=", place / run), concat("data.path=", place / file), concat("task.type=", task)});
  return parse_config(R"(
steps: 6
model: {type: bert, layers: 2, heads: 2, width: 8, block: 24, dropout: 0.1, attention_dropout: 0.1}
data: {validation: 0.2, tokenizer: byte}
batch: {global: 10, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 3}
log: {every: 1}
threads: 1
)",
                      "verdicts.yaml", more);
}

class LabelRun : public ::testing::TestWithParam<const char*> {};

TEST_P(LabelRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    write_verdicts(place, 37);
    expect_same_bits_in_every_stage(n, 4, [&](const std::string& name, std::vector<std::string> more) {
      return verdict_run(place, name, GetParam(), std::move(more));
    });
  }
}

TEST_P(LabelRun, IsEvaluatedAndPredictedAlikeByAnyNumberOfRanks) {
  const std::string task = GetParam();
  const TemporaryFolder place;
  write_verdicts(place, 31);
  train_by(1, verdict_run(place, "run", task));
  const std::string input = place / (task == "token_classification" ? "v.jsonl" : "v.csv"),
                    predicted = expect_same_answers_by_any_ranks(place / "run", input).predicted;
  std::istringstream lines(predicted);
  std::string line;
  std::int64_t example = 0;
  for (; std::getline(lines, line); ++example) EXPECT_EQ(Json::parse(line).at("example").integer(), example);
  EXPECT_EQ(example, 31);
}

TEST_P(LabelRun, HasNoCurriculumOfLengthsAsRowsAreAsLongAsTheLongestOfAStep) {
  const TemporaryFolder place;
  write_verdicts(place, 37);
  const Config config = verdict_run(place, "run", GetParam(), {"curriculum={type: fixed_linear, steps: 3}"});
  TrainObserver silent;
  EXPECT_EQ(error_of([&] { train(config, silent); }),
            "curriculum.type: the rows of this task are no sequences of a known length");
  EXPECT_FALSE(std::filesystem::exists(config.run));
}

INSTANTIATE_TEST_SUITE_P(Tasks, LabelRun, ::testing::Values("sequence_classification", "token_classification"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LabelRuns, LearnClassesNumbersAndWordsAndSayThem) {
  const TemporaryFolder place;
  write_verdicts(place, 200);
  const std::vector<std::string> longer = {"steps=120",      "eval.every=120", "checkpoint.every=0",
                                           "batch.micro=10", "model.width=16", "model.dropout=0"};
  const auto learnt = [&](const std::string& run, const std::string& task, std::vector<std::string> words) {
    words.insert(words.begin(), longer.begin(), longer.end());
    train_by(1, verdict_run(place, run, task, words));
    return evaluated_by(1, place / run);
  };
  const auto first_line = [&](const std::string& run, const std::string& input) {
    const std::string text = predicted_by(1, place / run, place / input);
    return Json::parse(text.substr(0, text.find('\n')));
  };
  const std::string sequence = "sequence_classification";
  EXPECT_GT(number_named(learnt("class", sequence, {"task.metrics=[accuracy,f1_macro]"}), "accuracy"), 0.9);
  write_text_file(place / "asked.txt", "dull dull fine\nodd long\n");
  Json said = first_line("class", "asked.txt");
  EXPECT_EQ(said.at("label").string(), "yes");
  EXPECT_NEAR(said.at("probabilities").at("yes").number() + said.at("probabilities").at("no").number(), 1, 1e-6);

  const std::vector<std::string> scores = {"task.problem=regression", "data.label=[score]", "steps=400",
                                           "optimizer.lr=3e-3"};
  EXPECT_GT(number_named(learnt("number", sequence, scores), "r2"), 0.7);
  said = first_line("number", "asked.txt");
  EXPECT_NEAR(said.at("value").number(), 1, 0.7);

  EXPECT_GT(number_named(learnt("words", "token_classification", {"data.group_by_length=true"}), "accuracy"), 0.95);
  write_text_file(place / "asked.jsonl", "{\"words\": [\"dull\", \"fine\", \"fine fine fine fine fine\"]}\n");
  said = first_line("words", "asked.jsonl");
  ASSERT_EQ(said.at("labels").items().size(), 3u);
  EXPECT_EQ(said.at("labels").items()[0].string(), "O");
  EXPECT_EQ(said.at("labels").items()[1].string(), "GOOD");
  write_text_file(place / "asked.jsonl", "{\"words\": [\"fine fine fine fine fine fine\", \"dull\"]}\n");
  said = first_line("words", "asked.jsonl");
  EXPECT_TRUE(said.at("labels").items()[1].is_null()) << "it was cut off";
}

// What was learnt is in the run's folder, so the data need not be there.
TEST(LabelRuns, PredictWithoutTheDataThatTheyLearntFrom) {
  const TemporaryFolder place;
  write_verdicts(place, 31);
  train_by(1, verdict_run(place, "run", "sequence_classification", {"data.tokenizer=character"}));
  std::filesystem::rename(place / "v.csv", place / "asked.csv");
  const std::string said = predicted_by(1, place / "run", place / "asked.csv");
  EXPECT_NE(said.find("\"label\":\"yes\""), std::string::npos);
  write_text_file(place / "asked.csv", "text\nfine\nqqq\n");
  const std::string message = error_of([&] { (void)predicted_by(1, place / "run", place / "asked.csv"); });
  EXPECT_NE(message.find("asked.csv', line 3: "), std::string::npos) << message;
}

TEST(LabelRuns, ValidateOnNamedSetsWithMetricsOfTheirOwn) {
  const TemporaryFolder place;
  write_verdicts(place, 31);
  train_by(1, verdict_run(place, "run", "sequence_classification",
                          {concat("data.sets=[{name: dev, path: ", place / "v.csv",
                                  "}, {name: odd, path: ", place / "v.csv", "}]")}));
  const std::string records = read_text_file(place / "run/metrics.jsonl");
  EXPECT_NE(records.find("\"dev/accuracy\""), std::string::npos);
  EXPECT_NE(records.find("\"odd/loss\""), std::string::npos);
}

}  // namespace
}  // namespace keel
