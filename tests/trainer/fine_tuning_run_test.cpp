// The task `fine_tuning` in runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/trainer/generate.h"
#include "tests/error_of.h"
#include "tests/trainer/run_laws.h"

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
      SCOPED_TRACE(form[0]);
      const TemporaryFolder place;
      expect_same_bits_in_every_stage(n, 2, [&](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(), form.begin(), form.end());
        return chat_run(place, name, std::move(more));
      });
    }
}

TEST(FineTuningRun, LearnsToAnswerAndDoesSoByAnyNumberOfRanks) {
  const TemporaryFolder place;
  // Of four tokens of an answer one is the letter. A GPT of this size does not find in 300 steps where the question's
  // letter stands, and has 3 / 4; positions that turn do.
  train_by(1, chat_run(place, "run",
                       {"steps=400", "eval.every=0", "checkpoint.every=0", "model.type=llama", "model.dropout=0",
                        "batch.micro=6"}));
  std::string asked;
  for (int i = 0; i < 7; ++i) asked += concat("{\"prompt\": \"", static_cast<char>('a' + i), "\"}\n");
  write_text_file(place / "asked.jsonl", asked);
  const auto [evaluated, predicted] = expect_same_answers_by_any_ranks(place / "run", place / "asked.jsonl");
  EXPECT_GT(number_named(evaluated, "accuracy"), 0.9);
  for (const int n : {1, 2, 3}) {
    std::string said;
    run_ranks(n, [&](Communicator& group) {
      generate(
          {.run = place / "run", .prompt = "c", .tokens = 20, .temperature = 0},
          [&](std::string_view piece) { said += piece; }, group);
    });
    EXPECT_NE(predicted.find(concat("{\"example\":2,\"answer\":", Json(said).dump(), "}")), std::string::npos)
        << said << predicted;
  }
  std::string expected;
  for (int i = 0; i < 7; ++i)
    expected += concat("{\"example\":", i, ",\"answer\":\"", static_cast<char>('b' + i), "\"}\n");
  EXPECT_EQ(predicted, expected);
}

TEST(FineTuningRun, OfAGptAnswersAlikeByAnyNumberOfRanks) {
  const TemporaryFolder place;
  train_by(1, chat_run(place, "run", {"steps=20", "eval.every=0", "model.dropout=0"}));
  std::string asked;
  for (int i = 0; i < 7; ++i) asked += concat("{\"prompt\": \"", static_cast<char>('a' + i), "\"}\n");
  write_text_file(place / "asked.jsonl", asked);
  const std::string predicted = expect_same_answers_by_any_ranks(place / "run", place / "asked.jsonl").predicted;
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
  expect({"data.tokenizer=model"}, "there is no model.from whose tokenizer could be taken");
  expect({"model.block=40"}, " tokens, and a row has 40; shorten it, enlarge model.block");
  expect({"model.block=4", "data.long=skip"}, "has no record that fits in model.block=4 tokens");
  expect({"data.packing=false", "curriculum={type: fixed_linear, steps: 3}"},
         "curriculum.type: the rows of this task are no sequences of a known length");
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
