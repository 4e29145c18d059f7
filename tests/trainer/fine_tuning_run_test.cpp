// The task `fine_tuning` in runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/generate.h"
#include "keel/trainer/predict_run.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// Which letter comes next; two turns now and then.
void write_chats(const TemporaryFolder& place, int count = 40) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string letter(1, static_cast<char>('a' + i % 12)), next(1, static_cast<char>('b' + i % 12));
    if (i % 5 == 0)
      lines += concat("{\"messages\": [{\"role\": \"user\", \"content\": \"", letter,
                      "\"}, {\"role\": \"assistant\", \"content\": \"", next,
                      "\"}, {\"role\": \"user\", \"content\": \"again\"}, {\"role\": \"assistant\", \"content\": \"",
                      next, "\"}]}\n");
    else lines += concat("{\"prompt\": \"", letter, "\", \"response\": \"", next, "\"}\n");
  }
  write_text_file(place / "chats.jsonl", lines);
}

Config chat_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  if (!std::filesystem::exists(place / "chats.jsonl")) write_chats(place);
  more.insert(more.begin(), {concat("run=", place / run), concat("data.path=", place / "chats.jsonl")});
  return parse_config(R"(
steps: 4
task: {type: fine_tuning}
model: {layers: 1, heads: 2, width: 16, block: 96, dropout: 0.1}
data: {template: plain, tokenizer: byte}
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 2}
checkpoint: {every: 2}
log: {every: 1}
threads: 1
)",
                      "chat.yaml", more);
}

TEST(FineTuningRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  const std::vector<std::string> forms[] = {{"data.packing=false"}, {"data.packing=true", "model.type=llama"}};
  for (const std::vector<std::string>& form : forms)
    for (const int n : {1, 2, 3}) {
      const TemporaryFolder place;
      const auto run = [&](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(), form.begin(), form.end());
        return chat_run(place, name, std::move(more));
      };
      for (const char* stage : {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"})
        train_by(n, run(stage, {concat("strategy=", stage)}));
      const std::string bits = weights_of(run("ddp-fp32", {}));
      for (const char* stage : {"zero1-fp32", "zero2-fp32", "zero3-fp32"})
        EXPECT_TRUE(weights_of(run(stage, {})) == bits) << stage << ' ' << n;
      train_by(n, run("resumed", {"strategy=zero1-fp32"}), 3);
      train_by(n, run("resumed", {"strategy=zero3-fp32", "resume=auto"}));
      EXPECT_TRUE(weights_of(run("resumed", {})) == bits) << form[0] << n;
    }
}

std::vector<NamedNumber> chat_evaluation(const std::string& run, int ranks) {
  std::vector<NamedNumber> values;
  run_ranks(ranks, [&](Communicator& group) {
    TrainedModel trained({.path = run}, group, [](LogLevel, std::string_view) {});
    const EvaluatedRun all = evaluate_run(trained);
    if (group.rank() == 0) values = all.sets.at(0).values;
  });
  return values;
}

TEST(FineTuningRun, LearnsToAnswerAndDoesSoByAnyNumberOfRanks) {
  const TemporaryFolder place;
  train_by(1, chat_run(place, "run", {"steps=120", "eval.every=0", "checkpoint.every=0", "model.dropout=0"}));
  const std::vector<NamedNumber> alone = chat_evaluation(place / "run", 1);
  for (const NamedNumber& each : alone) EXPECT_TRUE(each.name != "accuracy" || each.value > 0.6) << each.value;
  std::string asked;
  for (int i = 0; i < 7; ++i) asked += concat("{\"prompt\": \"", static_cast<char>('a' + i), "\"}\n");
  write_text_file(place / "asked.jsonl", asked);
  std::string predicted;
  for (const int n : {1, 2, 3}) {
    const std::vector<NamedNumber> values = chat_evaluation(place / "run", n);
    ASSERT_EQ(values.size(), alone.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].value, alone[i].value) << values[i].name << n;
    std::string said;
    run_ranks(n, [&](Communicator& group) {
      TrainedModel trained({.path = place / "run"}, group, [](LogLevel, std::string_view) {});
      predict_run(trained, {.input = place / "asked.jsonl", .out = place / concat("out", n)});
      generate(
          {.run = place / "run", .prompt = "c", .tokens = 20, .temperature = 0},
          [&](std::string_view piece) { said += piece; }, group);
    });
    const std::string lines = read_text_file(place / concat("out", n));
    if (n == 1) predicted = lines;
    EXPECT_EQ(lines, predicted) << n;
    EXPECT_NE(lines.find(concat("{\"example\":2,\"answer\":", Json(said).dump(), "}")), std::string::npos)
        << said << lines;
  }
  EXPECT_EQ(std::ranges::count(predicted, '\n'), 7);
}

TEST(FineTuningRun, RefusesRecordsAndTokenizersThatDoNotFit) {
  const TemporaryFolder place;
  const auto expect = [&](std::vector<std::string> settings, std::string_view what) {
    Recorder silent;
    const std::string message = error_of([&] { train(chat_run(place, "r", std::move(settings)), silent); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_TRUE(message.find(": the record ") == std::string::npos ||
                message.find("chats.jsonl', line ") != std::string::npos)
        << message;
  };
  expect({"data.template=llama3"},
         "the tokenizer has no <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>");
  expect({"data.tokenizer=character"}, "is made of one text, and there are records");
  expect({"data.tokenizer=model"}, "data.tokenizer=model is the tokenizer of model.from, which is none");
  expect({"model.block=40"}, " tokens, and a row has 40; shorten it, enlarge model.block");
  expect({"model.block=4", "data.long=skip"}, "has no record that fits in model.block=4 tokens");
  expect({"data.prompt=question"}, ": the record has neither 'messages' nor 'question'");
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
  Recorder told;
  train(chat_run(place, "skipped", {"model.block=40", "data.long=skip", "eval.every=0", "data.validation=0"}), told);
  EXPECT_NE(told.messages.find("8 records have no answer within model.block=40 tokens and are left out"),
            std::string::npos)
      << told.messages;
}

}  // namespace
}  // namespace keel
