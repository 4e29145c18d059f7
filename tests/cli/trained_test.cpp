// `keel evaluate`, `keel predict` and `keel generate` on ranks that share a trained model. What they compute:
// tests/trainer/trained_run_test.cpp.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/runtime/json.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

class TrainedRun : public ::testing::Test {
 protected:
  TrainedRun() {
    EXPECT_EQ(sandbox.keel("train text.yaml run=made").code, 0);
    sandbox.write("lines.txt", "The quick\nbrown fox jumps over the lazy dog, and far beyond its block.\n");
  }

  std::string out_of(const std::string& arguments) const {
    const Outcome outcome = sandbox.keel(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << arguments;
    return outcome.out;
  }

  // One line with the reason, exit code 2, and no file made or changed.
  void expect_refused(const std::string& arguments, const std::string& reason) const {
    SCOPED_TRACE(arguments);
    const auto before = sandbox.contents();
    const Outcome outcome = sandbox.keel(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    EXPECT_EQ(sandbox.contents(), before);
  }

  Sandbox sandbox;
};

TEST_F(TrainedRun, IsEvaluatedInATableAndAFileThatAreThoseOfTraining) {
  const std::string table = out_of("evaluate made --json one.json");
  EXPECT_TRUE(table.starts_with("made/checkpoints/step-00000012: step 12 of the task language, fp32\n")) << table;
  EXPECT_NE(table.find("validation  validation_loss"), std::string::npos) << table;
  const std::string shared = out_of("launch -N 3 --threads --strat zero3 evaluate made --json three.json");
  EXPECT_NE(shared.find("zero3-fp32 by 3 ranks"), std::string::npos) << shared;
  EXPECT_EQ(sandbox.read("three.json"), sandbox.read("one.json"));
  const Json told = Json::parse(sandbox.read("one.json"));
  const std::string loss = told.at("sets").items().front().at("values").at("validation_loss").dump();
  EXPECT_NE(sandbox.read("made/metrics.jsonl").find(concat("\"validation_loss\":", loss)), std::string::npos) << loss;
  expect_refused("evaluate made --on other", "there is no validation set 'other'; there are validation");
  expect_refused("evaluate corpus.txt", "'corpus.txt' is a file");
  expect_refused("evaluate made --json none/one.json", "none/one.json");
  expect_refused("launch -N 2 --threads evaluate made --strat zero9", "zero9");
  expect_refused("evaluate made data.digits=2", "data.digits");
}

TEST_F(TrainedRun, IsEvaluatedWithTheAverageOfItsWeightsAndAtItsBest) {
  const std::string training = "train text.yaml eval.every=4 checkpoint.every=0 checkpoint.best=validation_loss ";
  EXPECT_EQ(sandbox.keel(training + "ema.decay=0.9 run=averaged").code, 0);
  const auto loss_of = [&](const std::string& arguments) {
    out_of("evaluate averaged --json loss.json " + arguments);
    return Json::parse(sandbox.read("loss.json")).at("sets").items().front().at("values").at("validation_loss").dump();
  };
  const std::string metrics = sandbox.read("averaged/metrics.jsonl");
  const std::string last = loss_of("--ema");
  EXPECT_NE(metrics.find(concat("{\"step\":12,\"validation_loss\":", last)), std::string::npos)
      << "training evaluated the average: " << last << '\n'
      << metrics;
  EXPECT_NE(sandbox.keel("evaluate averaged").err.find("--ema of the average"), std::string::npos);
  EXPECT_EQ(sandbox.keel("launch -N 2 --threads --strat zero3 evaluate averaged --ema --json two.json").code, 0);
  EXPECT_NE(sandbox.read("two.json").find(last), std::string::npos);
  const std::string best = loss_of("--ema --best");
  EXPECT_NE(metrics.find(concat("\"validation_loss\":", best)), std::string::npos) << best;
  out_of("predict averaged --ema --input lines.txt --out averaged.jsonl");
  out_of("predict averaged --input lines.txt --out plain.jsonl");
  EXPECT_NE(sandbox.read("averaged.jsonl"), sandbox.read("plain.jsonl"));
  expect_refused("evaluate made --ema", "has no average of this kind; ema.decay asks for one");
  expect_refused("evaluate averaged --swa", "has no average of this kind; swa.start asks for one");
  expect_refused("evaluate made --best", "names no best checkpoint");
  expect_refused("evaluate averaged --ema --swa", "leave one out");
  expect_refused("predict averaged --best --step 4 --input lines.txt --out a", "leave --step out");
  expect_refused("evaluate averaged/checkpoints/step-00000012 --best", "is one checkpoint; leave --best out");
}

TEST_F(TrainedRun, PredictsByThreeRanksWhatOnePredicts) {
  EXPECT_EQ(out_of("predict made --input lines.txt --out one.jsonl"), "one.jsonl: 2 examples, by step 12 of made\n");
  out_of("launch -N 3 --threads --strat zero3 predict made --input lines.txt --out three.jsonl");
  EXPECT_EQ(sandbox.read("three.jsonl"), sandbox.read("one.jsonl"));
  EXPECT_TRUE(sandbox.read("one.jsonl").starts_with("{\"example\":0,\"tokens\":8,\"loss\":"));
  expect_refused("predict made --input lines.txt --out one.jsonl", "--force replaces it");
  expect_refused("predict made --input lines.txt --out none/one.jsonl", "none/one.jsonl");
  expect_refused("launch -N 2 --threads predict made --input none.txt --out two.jsonl", "none.txt");
}

TEST_F(TrainedRun, GeneratesByTwoRanksWhatOneGenerates) {
  const std::string alone = out_of("generate made --prompt 'The qui' --seed 4 --tokens 30");
  EXPECT_EQ(out_of("launch -N 2 --threads --strat zero3 generate made --prompt 'The qui' --seed 4 --tokens 30"), alone);
  EXPECT_EQ(out_of("launch -N 2 --tcp --strat zero3 generate made --prompt 'The qui' --seed 4 --tokens 30"), alone);
}

TEST_F(TrainedRun, GeneratesTheAnswersOfAFileInItsOrder) {
  sandbox.write("prompts.txt", "The\nThe quick b\njumps\n\n");
  sandbox.write("gap.txt", "The\n\njumps\n");
  sandbox.write("prompts.jsonl",
                "{\"prompt\":\"The\",\"text\":\"x\"}\n{\"text\":\"The quick b\"}\n{\"prompt\":\"jumps\"}\n");
  const std::string words = "generate made --seed 4 --tokens 20 --top-k 3 --top-p 0.9 --repetition-penalty 1.05 ";
  EXPECT_EQ(out_of(words + "--prompts prompts.txt --out one.jsonl --batch 1"), "one.jsonl: 3 answers\n");
  const std::string answers = sandbox.read("one.jsonl");
  EXPECT_EQ(std::ranges::count(answers, '\n'), 3);
  const Json first = Json::parse(answers.substr(0, answers.find('\n')));
  EXPECT_EQ(first.at("example").integer(), 0);
  EXPECT_EQ(first.at("prompt").string(), "The");
  EXPECT_EQ(first.at("answer").string() + "\n", out_of(words + "--prompt The"));
  out_of("launch -N 2 --threads --strat zero3 " + words + "--prompts prompts.jsonl --out two.jsonl --batch 1");
  EXPECT_EQ(sandbox.read("two.jsonl"), answers);
  sandbox.write("prompts.csv", "x,prompt\n1,The\n2,\"The quick b\"\n3,jumps\n");
  out_of(words + "--prompts prompts.csv --out table.jsonl --batch 1");
  EXPECT_EQ(sandbox.read("table.jsonl"), answers);
  sandbox.write("numbers.csv", "prompt\n1\n");
  expect_refused(words + "--prompts numbers.csv --out four.jsonl", "'numbers.csv', line 2: `prompt` is ");
  out_of(words + "--prompts prompts.txt --out three.jsonl");
  EXPECT_EQ(std::ranges::count(sandbox.read("three.jsonl"), '\n'), 3);
  const std::string whole = first.at("answer").string(), stop = whole.substr(8, 3);
  EXPECT_EQ(out_of(words + "--prompt The --stop nothing --stop '" + stop + "'"),
            whole.substr(0, whole.find(stop, 3)) + "\n");
  expect_refused(words + "--prompts prompts.txt --out one.jsonl", "--force replaces it");
  expect_refused(words + "--prompts prompts.txt", "--prompts and --out go together");
  expect_refused(words + "--prompt a --prompts prompts.txt --out four.jsonl", "give one of them");
  expect_refused(words + "--prompts none.txt --out four.jsonl", "none.txt");
  expect_refused(words + "--prompts gap.txt --out four.jsonl", "'gap.txt', line 2: the line is empty");
  expect_refused(words + "--prompt The --stop ''", "a stop is empty");
  expect_refused("generate made --prompt The --top-p 0", "top_p is a share of the probability");
  expect_refused("generate made --prompt The --repetition-penalty 0", "repetition_penalty must be above 0");
}

}  // namespace
}  // namespace keel::cli
