// Trained models that answer: what `keel evaluate`, `keel predict` and `keel generate` do, by any number of ranks and
// in every stage.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/generate.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/predict_run.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr const char* kAllStages[] = {"ddp", "zero1", "zero2", "zero3"};

const Tell kSilent = [](LogLevel, std::string_view) {};

// The JSON of an evaluation by so many ranks.
std::string evaluated(int ranks, const TrainedSource& source, const std::string& on = "") {
  std::string text;
  run_ranks(ranks, [&](Communicator& group) {
    TrainedModel trained(source, group, kSilent);
    const std::string own = evaluate_run(trained, on).json().dump();
    if (group.rank() == 0) text = own;
  });
  return text;
}

std::string predicted(int ranks, const TrainedSource& source, const std::string& input, const std::string& out) {
  std::int64_t examples = 0;
  run_ranks(ranks, [&](Communicator& group) {
    TrainedModel trained(source, group, kSilent);
    const PredictedRun done = predict_run(trained, {.input = input, .out = out, .replaces = true});
    if (group.rank() == 0) examples = done.examples;
  });
  const std::string text = read_text_file(out);
  EXPECT_EQ(std::ranges::count(text, '\n'), examples);
  return text;
}

std::string generated(int ranks, GenerateOptions options) {
  std::string text;
  run_ranks(ranks, [&](Communicator& group) {
    generate(
        options, [&](std::string_view piece) { text += piece; }, group);
  });
  return text;
}

double told_loss(const Config& config, std::int64_t step) {
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.at("step").integer() == step && record.contains("validation_loss"))
      return record.at("validation_loss").number();
  return std::nan("");
}

TEST(EvaluateRun, HasTheBitsThatTrainingToldByAnyNumberOfRanksAndInEveryStage) {
  for (const char* precision : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", {concat("strategy=zero2-", precision), "checkpoint.every=4"});
    train_by(2, config);
    for (const std::int64_t step : {8, 12}) {
      const std::string alone = evaluated(1, {.path = config.run, .step = step});
      const double loss = Json::parse(alone).at("sets").items().front().at("values").at("validation_loss").number();
      EXPECT_EQ(loss, told_loss(config, step)) << "of step " << step << " in " << precision;
      for (const int ranks : {2, 3, 4}) EXPECT_EQ(evaluated(ranks, {.path = config.run, .step = step}), alone) << ranks;
      for (const char* stage : kAllStages)
        EXPECT_EQ(evaluated(3, {.path = config.run, .step = step, .strategy = stage}), alone) << stage;
    }
    const std::string newest = evaluated(1, {.path = config.run, .step = 12});
    EXPECT_EQ(evaluated(2, {.path = config.run}), newest) << "the newest, unless said otherwise";
    EXPECT_EQ(evaluated(2, {.path = RunFolder(config.run).checkpoint(12)}), newest);
    EXPECT_EQ(evaluated(1, {.path = config.run}, "validation"), newest);
  }
}

TEST(EvaluateRun, NeedsNoRanksThatTheGroupsOfItsTrainingDivide) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", {"strategy=zero3-fp32", "sharding.subgroup=2", "sharding.secondary=true", "steps=4"});
  train_by(4, config);
  const std::string alone = evaluated(1, {.path = config.run});
  EXPECT_EQ(Json::parse(alone).at("sets").items().front().at("values").at("validation_loss").number(),
            told_loss(config, 4));
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(evaluated(ranks, {.path = config.run}), alone) << ranks;
  const Config in_groups =
      small_run(place, "groups", {"strategy=zero3-fp32", "sharding.subgroup=2", "sharding.group=2", "steps=4"});
  train_by(4, in_groups);
  const std::string of_groups = evaluated(1, {.path = in_groups.run});
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(evaluated(ranks, {.path = in_groups.run}), of_groups) << ranks;
}

TEST(EvaluateRun, TakesAnotherStrategyAndOtherData) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  const auto loss_of = [](const std::string& text) {
    return Json::parse(text).at("sets").items().front().at("values").at("validation_loss").number();
  };
  const double loss = loss_of(evaluated(1, {.path = config.run}));
  const double in_16_bits = loss_of(evaluated(2, {.path = config.run, .strategy = "zero3-bf16"}));
  EXPECT_NE(in_16_bits, loss);
  EXPECT_NEAR(in_16_bits, loss, 0.02 * loss);
  // Of fewer different characters: they keep the numbers that they were learnt by.
  std::string few;
  for (int i = 0; i < 400; ++i) few += concat("line ", i % 3, '\n');
  write_text_file(place / "few.txt", few);
  EXPECT_NE(loss_of(evaluated(1, {.path = config.run, .changes = {concat("data.path=", place / "few.txt")}})), loss);
  write_text_file(place / "other.txt", few + "Q");
  EXPECT_NE(error_of([&] {
              evaluated(2, {.path = config.run, .changes = {concat("data.path=", place / "other.txt")}});
            }).find("U+51"),
            std::string::npos);
  const std::string first = evaluated(1, {.path = config.run, .changes = {"eval.batches=1"}});
  EXPECT_EQ(Json::parse(first).at("sets").items().front().at("batches").integer(), 1);
}

TEST(EvaluateRun, APassesOverADamagedCheckpointOfARunAlone) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"checkpoint.every=4"});
  train_by(1, config);
  const RunFolder folder(config.run);
  const std::string weights = folder.checkpoint(12) + "/model.safetensors";
  std::string bytes = read_text_file(weights);
  bytes.back() ^= 1;
  write_text_file(weights, bytes);
  const std::string before = evaluated(1, {.path = config.run, .step = 8});
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(evaluated(ranks, {.path = config.run}), before) << ranks;
    EXPECT_NE(error_of([&] { evaluated(ranks, {.path = config.run, .step = 12}); }), "");
  }
}

TEST(EvaluateRun, RefusesWhatItCannotEvaluate) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  const auto refusal = [&](const TrainedSource& source, const std::string& on = "") {
    const std::string alone = error_of([&] { evaluated(1, source, on); });
    EXPECT_EQ(error_of([&] { evaluated(2, source, on); }), alone) << "by several ranks";
    return alone;
  };
  EXPECT_EQ(refusal({.path = config.run}, "valid"), "there is no validation set 'valid'; there are validation");
  EXPECT_NE(refusal({.path = place.path() + "/none"}).find("there is no '"), std::string::npos);
  EXPECT_NE(refusal({.path = place.path()}).find("neither the folder of a run nor a checkpoint"), std::string::npos);
  EXPECT_NE(refusal({.path = config.run, .step = 7}).find("has no checkpoint of step 7; it has 10, 12"),
            std::string::npos);
  EXPECT_NE(refusal({.path = config.run, .changes = {"model.width=32"}}).find("another model"), std::string::npos);
  EXPECT_NE(refusal({.path = config.run, .changes = {"data.validation=0"}}).find("no validation set"),
            std::string::npos);
  EXPECT_NE(refusal({.path = config.run, .strategy = "zero3-fp8"}).find("zero3-fp8"), std::string::npos);
}

TEST(PredictRun, WritesTheLikelihoodOfEachTextInOrderByAnyNumberOfRanks) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  // Shorter and longer than the block of 16, and one without a token to guess.
  std::string input, lines;
  for (int i = 0; i < 23; ++i) {
    std::string text = concat("line ", i * i, " of ", i);
    if (i % 7 == 0) text += text + text + text;
    if (i == 11) text = "l";
    lines += text + '\n';
    input += Json({{"id", i}, {"text", text}}).dump() + "\n";
  }
  write_text_file(place / "in.txt", lines);
  write_text_file(place / "in.jsonl", input + "\n\n");
  const std::string alone = predicted(1, {.path = config.run}, place / "in.txt", place / "out.jsonl");
  EXPECT_EQ(predicted(1, {.path = config.run}, place / "in.jsonl", place / "out.jsonl"), alone);
  for (const int ranks : {2, 3, 4})
    for (const char* stage : {"ddp", "zero3"})
      EXPECT_EQ(predicted(ranks, {.path = config.run, .strategy = stage}, place / "in.txt", place / "out.jsonl"), alone)
          << ranks << ' ' << stage;
  std::istringstream stream(alone);
  int row = 0;
  for (std::string line; std::getline(stream, line); ++row) {
    const Json json = Json::parse(line);
    EXPECT_EQ(json.at("example").integer(), row);
    if (row == 11) {
      EXPECT_EQ(line, R"({"example":11,"tokens":0,"loss":null,"perplexity":null})");
      continue;
    }
    EXPECT_NEAR(json.at("perplexity").number(), std::exp(json.at("loss").number()), 1e-9);
    EXPECT_GT(json.at("tokens").integer(), 8);
  }
  EXPECT_EQ(row, 23);
}

// The mean over tokens of what is told of single texts is what an evaluation tells of all.
TEST(PredictRun, AgreesWithTheEvaluationOfTheSameText) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"data.tokenizer=byte", "model.block=32", "data.validation=0.5"});
  train_by(1, config);
  const std::string text = sample_text(), half = text.substr(text.size() / 2);
  std::string one_line = half;
  std::ranges::replace(one_line, '\n', ' ');
  std::string spaced = text.substr(0, text.size() - half.size()) + one_line;
  write_text_file(place / "spaced.txt", spaced);
  write_text_file(place / "line.txt", one_line + '\n');
  const TrainedSource source{.path = config.run, .changes = {concat("data.path=", place / "spaced.txt")}};
  const Json told = Json::parse(evaluated(1, source)).at("sets").items().front().at("values");
  const Json line = Json::parse(predicted(1, source, place / "line.txt", place / "out.jsonl"));
  EXPECT_EQ(line.at("tokens").integer(), std::ssize(one_line) - 1);
  EXPECT_NEAR(line.at("loss").number(), told.at("validation_loss").number(), 1e-6);
}

Config adding_run(const TemporaryFolder& place) {
  return parse_config(
      "steps: 40\nmodel: {layers: 1, heads: 2, width: 32, block: 9}\n"
      "data: {type: addition, digits: 2}\nbatch: {global: 8}\neval: {samples: 20}\nthreads: 1\n",
      "addition.yaml", {concat("run=", place / "run")});
}

TEST(PredictRun, AnswersSumsAsGenerateDoes) {
  const TemporaryFolder place;
  const Config config = adding_run(place);
  train_by(1, config);
  write_text_file(place / "sums.txt", "12+34=\n 7 + 5\n99+99=\n");
  const std::string alone = predicted(1, {.path = config.run}, place / "sums.txt", place / "out.jsonl");
  EXPECT_EQ(predicted(3, {.path = config.run, .strategy = "zero3"}, place / "sums.txt", place / "out.jsonl"), alone);
  std::istringstream stream(alone);
  for (const char* prompt : {"12+34=", "07+05=", "99+99="}) {
    std::string line;
    ASSERT_TRUE(std::getline(stream, line));
    const Json sum = Json::parse(line).at("sum");
    const std::string text = generated(2, {.run = config.run, .prompt = prompt, .strategy = "zero3"});
    const std::string answer = sum.is_null() ? "(no number)" : std::to_string(sum.integer());
    EXPECT_TRUE(text.starts_with(prompt) && text.ends_with(answer)) << text << " and " << line;
  }
}

TEST(PredictRun, RefusesWhatCannotBeReadOrWrittenBeforeAnythingIsComputed) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  write_text_file(place / "in.txt", "line 1\n");
  const auto refusal = [&](const PredictOptions& options) {
    std::string alone;
    for (const int ranks : {1, 3}) {
      const std::string words = error_of([&] {
        run_ranks(ranks, [&](Communicator& group) {
          TrainedModel trained({.path = config.run}, group, kSilent);
          predict_run(trained, options);
        });
      });
      if (ranks == 1) alone = words;
      EXPECT_EQ(words, alone);
    }
    return alone;
  };
  const std::string in = place / "in.txt", out = place / "out.jsonl";
  EXPECT_NE(refusal({.input = in, .out = place / "none/out.jsonl"}).find("none/out.jsonl"), std::string::npos);
  EXPECT_NE(refusal({.input = in, .out = place.path()}).find("is a folder"), std::string::npos);
  EXPECT_NE(refusal({.input = in, .out = in, .replaces = true}).find("is the input"), std::string::npos);
  EXPECT_NE(refusal({.input = place / "none.txt", .out = out}).find("none.txt"), std::string::npos);
  write_text_file(place / "empty.txt", "\n");
  EXPECT_NE(refusal({.input = place / "empty.txt", .out = out}).find("has no text"), std::string::npos);
  write_text_file(place / "wrong.jsonl", "{\"text\": \"line\"}\n{\"words\": \"line\"}\n");
  EXPECT_NE(refusal({.input = place / "wrong.jsonl", .out = out}).find("wrong.jsonl', line 2: "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(out)) << "nothing is half written";
  write_text_file(out, "before");
  EXPECT_NE(refusal({.input = in, .out = out}).find("is there already; --force"), std::string::npos);
  EXPECT_EQ(read_text_file(out), "before");
  for (const auto& entry : std::filesystem::directory_iterator(place.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path() << " was left behind";
}

TEST(Generate, RefusesADeviceThatIsGivenTwice) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  GenerateOptions options{.run = config.run, .prompt = "line ", .tokens = 2, .changes = {"device=cpu"}};
  EXPECT_EQ(generated(1, options).size(), 7u);
  options.device = "cuda";
  EXPECT_EQ(error_of([&] { (void)generated(1, options); }),
            "the device is given twice, as --device cuda and as device=...; leave one out");
}

TEST(Generate, HasTheTextOfOneRankByThreeThatShareTheModel) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run");
  train_by(1, config);
  const GenerateOptions options{.run = config.run, .prompt = "line ", .tokens = 40, .seed = 5};
  std::string alone;
  generate(options, [&](std::string_view piece) { alone += piece; });
  EXPECT_EQ(alone.size(), 45u);
  for (const int ranks : {1, 2, 3}) {
    GenerateOptions shared = options;
    shared.strategy = "zero3";
    EXPECT_EQ(generated(ranks, shared), alone) << ranks;
  }
  EXPECT_NE(error_of([&] { generated(2, {.run = config.run, .prompt = "Q"}); }).find("U+51"), std::string::npos);
}

}  // namespace
}  // namespace keel
