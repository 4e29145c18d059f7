// The task `supervised`: heads by name, from a table to predictions.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/data/columns.h"
#include "keel/data/csv.h"
#include "keel/data/jsonl.h"
#include "keel/runtime/random.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/readings.h"
#include "tests/trainer/run_laws.h"

namespace keel {
namespace {

using namespace testing;

TEST(SupervisedRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  for (const int n : {1, 2, 3, 4}) {
    const TemporaryFolder place;
    write_readings(place, 37);  // of which 30 are trained on: an epoch of three steps
    expect_same_bits_in_every_stage(n, 4, [&](const std::string& name, std::vector<std::string> more) {
      return readings_run(place, name, std::move(more));
    });
    train_by(n, readings_run(place, "again", {"strategy=zero3-fp32", "model.recompute=true"}));
    EXPECT_TRUE(weights_of(readings_run(place, "again")) == weights_of(readings_run(place, "ddp-fp32")))
        << "activations that are computed again, by " << n;
  }
}

TEST(SupervisedRun, LearnsNumbersAndClassesTogetherFromEveryKindOfFile) {
  const TemporaryFolder place;
  write_readings(place);
  write_columns(place / "r.keel", *open_csv(place / "r.csv"));
  const std::vector<std::string> longer = {"steps=150",         "eval.every=150",
                                           "batch.micro=10",    "checkpoint.every=0",
                                           "optimizer.lr=2e-2", "model.trunk=dense 24 tanh; dense 24 tanh"};
  std::vector<double> losses;
  for (const char* file : {"r.csv", "r.jsonl", "r.keel"}) {
    std::vector<std::string> words = longer;
    words.push_back(concat("data.path=", place / file));
    Recorder told;
    train(readings_run(place, concat("of_", file), words), told);
    losses.push_back(told.validation);
    const std::vector<NamedNumber> values = evaluated_by(1, place / concat("of_", file));
    EXPECT_GT(number_named(values, "far_r2"), 0.97);
    EXPECT_GT(number_named(values, "sky_accuracy"), 0.85);
    const double mae = number_named(values, "far_mae");
    EXPECT_GT(mae, 0.1) << "in the data's own unit";
    EXPECT_LT(mae, 30);
    EXPECT_NEAR(
        number_named(values, "validation_loss"),
        number_named(values, "sky") + 0.5 * number_named(values, "far") + 0.001 * number_named(values, "far_square"),
        1e-6);
  }
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_NEAR(losses[0], losses[1], 1e-3);  // the lists of JSON are numbers of fp32 before they are scaled
}

TEST(SupervisedRun, IsEvaluatedAndPredictedAlikeByAnyNumberOfRanks) {
  const TemporaryFolder place;
  write_readings(place, 31);
  train_by(1, readings_run(place, "run"));
  std::filesystem::rename(place / "r.jsonl", place / "asked.jsonl");
  const std::string predicted = expect_same_answers_by_any_ranks(place / "run", place / "r.csv").predicted;
  const Json first = Json::parse(predicted.substr(0, predicted.find('\n')));
  EXPECT_EQ(first.at("example").integer(), 0);
  EXPECT_NEAR(first.at("far").number(), 1000, 400) << "in the data's own unit";
  EXPECT_TRUE(first.at("sky").string() == "clear" || first.at("sky").string() == "clouds" ||
              first.at("sky").string() == "rain");
  EXPECT_GT(first.at("sky_probability").number(), 0.33);
}

TEST(SupervisedRun, IsEvaluatedWhateverScheduleItsEpochsHad) {
  const TemporaryFolder place;
  write_readings(place, 37);
  for (const char* schedule : {"cosine", "linear_with_warmup", "inverse_sqrt"}) {
    const Config config = parse_config(R"(
epochs: 4
task: {type: supervised}
model: {trunk: dense 4 tanh, heads: [{name: far}]}
data: {validation: 0.2}
batch: {global: 10}
checkpoint: {every: 0}
)",
                                       "epochs.yaml",
                                       {concat("run=", place / schedule), concat("data.path=", place / "r.csv"),
                                        concat("scheduler={type: ", schedule, ", warmup: 5}")});
    train_by(1, config);
    EXPECT_FALSE(evaluated_by(1, config.run).empty()) << schedule;
  }
}

TEST(SupervisedRun, PredictsWithoutTheDataThatItLearntFrom) {
  const TemporaryFolder place;
  write_readings(place, 31);
  train_by(1, readings_run(place, "run"));
  std::filesystem::remove(place / "r.csv");
  write_text_file(place / "asked.csv", "b,a\n0.5,-0.25\n");
  run_ranks(1, [&](Communicator& group) {
    TrainedModel trained({.path = place / "run"}, group, kToldNothing);
    EXPECT_EQ(predict_run(trained, {.input = place / "asked.csv", .out = place / "out"}).examples, 1);
    write_text_file(place / "asked.csv", "b,c\n0.5,-0.25\n");
    TrainedModel again({.path = place / "run"}, group, kToldNothing);
    const std::string message =
        error_of([&] { predict_run(again, {.input = place / "asked.csv", .out = place / "other"}); });
    EXPECT_NE(message.find("asked.csv', example 0 (from 0 on): "), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(place / "other"));
    write_text_file(place / "asked.csv", "b,a\n0.5,-0.25\n\n0.5,0.25\n");
    TrainedModel gap({.path = place / "run"}, group, kToldNothing);
    EXPECT_NE(error_of([&] {
                predict_run(gap, {.input = place / "asked.csv", .out = place / "other"});
              }).find("asked.csv', line 3: the line is empty"),
              std::string::npos);
    write_text_file(place / "asked.csv", "b,a\n0.5,-0.25\n\n\n");
    TrainedModel end({.path = place / "run"}, group, kToldNothing);
    EXPECT_EQ(predict_run(end, {.input = place / "asked.csv", .out = place / "other"}).examples, 1);
  });
}

TEST(SupervisedRun, AsksNothingOfAFileOfColumnsThatWasChanged) {
  const TemporaryFolder place;
  write_readings(place, 31);
  train_by(1, readings_run(place, "run"));
  const std::string path = place / "run/columns.json", whole = read_text_file(path);
  const auto expect = [&](std::string_view old, std::string_view other, const char* what) {
    std::string text = whole;
    ASSERT_NE(text.find(old), std::string::npos) << text;
    write_text_file(path, text.replace(text.find(old), old.size(), other));
    const std::string message = error_of([&] { evaluated_by(1, place / "run"); });
    EXPECT_NE(message.find("columns.json': "), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect("\"sky\"", "\"sun\"", "has other heads than model.heads");
  expect("\"clouds\",", "", "scale or classes of the head 'sky' are not of its width 3");
  expect("\"width\": 2", "\"width\": 4", "the scale of the inputs is not one of 4 numbers");
  expect("\"width\"", "\"breadth\"", "width");
}

// Found by the one rank that reads the row, where nothing asks for all rows before the training.
TEST(SupervisedRun, EndsOnEveryRankWhereOneMeetsARowThatIsWrong) {
  for (const int n : {2, 3, 4}) {
    const TemporaryFolder place;
    write_readings(place, 30);
    write_text_file(place / "r.csv", read_text_file(place / "r.csv") + "0.1,0.2,1e300,rain\n");
    const std::string message = error_of([&] {
      train_by(n, readings_run(place, "run", {"data.validation=0", "data.scale=none", "model.heads=[{name: far}]"}));
    });
    EXPECT_NE(message.find("r.csv', example 30 (from 0 on): far: 1e+300 is beyond the numbers of fp32"),
              std::string::npos)
        << message;
  }
}

// Two heads, of which one has no weight, train the other as it is trained alone.
TEST(SupervisedRun, WeighsTheLossesOfItsHeads) {
  const TemporaryFolder place;
  write_readings(place, 40);
  const std::string both = "model.heads=[{name: far, scale: standard}, {name: sky, type: classification, weight: 0}]";
  const auto run = [&](const std::string& name, const std::string& heads) {
    Recorder told;
    train(readings_run(place, name, {heads, "task.regularizers=[]", "clip=0", "data.inputs=[a, b]"}), told);
    const double r2 = number_named(evaluated_by(1, place / name), "far_r2");
    EXPECT_TRUE(std::isfinite(r2)) << name;
    return r2;
  };
  EXPECT_EQ(run("both", both), run("one", "model.heads=[{name: far, scale: standard}]"));
  EXPECT_NE(run("other", "model.heads=[{name: far, scale: standard, loss: mae}]"), run("same", both));
}

TEST(SupervisedRun, CastsLabels) {
  const TemporaryFolder place;
  std::string numbers = "a,digit\n", words = "a,digit\n", hot = "a,d0,d1,d2\n", whole;
  for (int i = 0; i < 30; ++i) {
    const int digit = i % 3;
    numbers += concat(i, ',', digit, ".0\n");
    words += concat(i, ',', "xyz"[digit], '\n');
    hot += concat(i, ',', digit == 0, ',', digit == 1, ',', digit == 2, '\n');
    whole += concat("{\"a\": ", i, ", \"digit\": ", digit, "}\n");
  }
  write_text_file(place / "numbers.csv", numbers);
  write_text_file(place / "words.csv", words);
  write_text_file(place / "hot.csv", hot);
  write_text_file(place / "whole.jsonl", whole);
  const auto loss = [&](const std::string& file, const std::string& head) {
    Recorder told;
    train(readings_run(place, concat(file, head.size()),
                       {concat("data.path=", place / file), "task.regularizers=[]",
                        concat("model.heads=[{name: digit, type: classification", head, "}]")}),
          told);
    return told.losses.back();
  };
  const double wanted = loss("numbers.csv", "");
  EXPECT_EQ(loss("words.csv", ""), wanted);
  EXPECT_EQ(loss("whole.jsonl", ""), wanted);
  EXPECT_EQ(loss("whole.jsonl", ", classes: 3"), wanted);
  EXPECT_EQ(loss("hot.csv", ", columns: [d0..d2]"), wanted);
}

TEST(SupervisedRun, ValidatesOnAFileOfItsOwn) {
  const TemporaryFolder place;
  write_readings(place, 40);
  write_text_file(place / "v.csv", "a,b,far,sky\n0.5,0.1,1030,rain\n-0.5,0.2,910,clouds\n");
  const Config config = readings_run(place, "run", {concat("data.validation_path=", place / "v.csv")});
  Recorder told;
  train(config, told);
  EXPECT_EQ(read_metrics(RunFolder(config.run).metrics()).front().at("epoch").number(), 0.25)
      << "all 40 are trained on";
  EXPECT_TRUE(std::isfinite(number_named(evaluated_by(1, place / "run"), "far_r2")));
  write_text_file(place / "v.csv", "a,b,far,sky\n0.5,0.1,1030,rain\n");
  EXPECT_TRUE(std::isnan(number_named(evaluated_by(1, place / "run"), "far_r2"))) << "of one row R2 is not defined";
}

TEST(SupervisedRun, LearnsFromATableByTheExampleOfItsPage) {
  const TemporaryFolder place;
  write_readings(place, 50);
  const std::string run = place / "run";
  Recorder told;
  train(load_config(KEEL_SOURCE_DIR "/examples/table.yaml",
                    {concat("data.path=", place / "r.csv"), concat("run=", run), "epochs=2", "threads=1"}),
        told);
  const std::vector<NamedNumber> values = evaluated_by(1, run);
  for (const char* name : {"sky_accuracy", "sky_f1_macro", "far_r2", "far_mae"})
    EXPECT_TRUE(std::isfinite(number_named(values, name))) << name;
}

TEST(SupervisedRun, IsPlannedWithoutTraining) {
  const TemporaryFolder place;
  write_readings(place);
  const std::unique_ptr<TaskBase> task = make_task(readings_run(place, "run"));
  EXPECT_EQ(measure_model(*task->stacks().front().module).parameters, 2 * 16 + 16 + 16 * 3 + 3 + 16 * 1 + 1);
}

}  // namespace
}  // namespace keel
