// The task `masked_language` in runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "keel/data/tokenize_files.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/run_laws.h"

namespace keel {
namespace {

using namespace testing;

// Words of the sample text for WordPiece: numbers are cut into digits.
void write_word_pieces(const TemporaryFolder& place) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nline\nof\n";
  for (int digit = 0; digit < 10; ++digit) vocabulary += concat(digit, "\n##", digit, '\n');
  write_text_file(place / "vocab.txt", vocabulary);
}

Config masked_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  if (!std::filesystem::exists(place / "vocab.txt")) write_word_pieces(place);
  if (!std::filesystem::exists(place / "text.txt")) write_text_file(place / "text.txt", sample_text());
  more.insert(more.begin(), concat("run=", place / run));
  const auto has = [&](std::string_view word) { return std::ranges::find(more, word) != more.end(); };
  if (!has("data.type=mixture")) more.insert(more.begin(), concat("data.path=", place / "text.txt"));
  if (!has("data.type=tokens")) more.insert(more.begin(), concat("data.tokenizer=", place / "vocab.txt"));
  return parse_config(R"(
steps: 4
task: {type: masked_language}
model: {layers: 2, heads: 2, width: 16, block: 24, dropout: 0.1, attention_dropout: 0.1}
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 2}
checkpoint: {every: 2}
log: {every: 1}
threads: 1
)",
                      "masked.yaml", more);
}

TEST(MaskedLanguageRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  const std::vector<std::string> forms[] = {{"task.masking=tokens"},
                                            {"task.masking=words", "data.rows=documents"},
                                            {"task.masking=budget", "model.type=roberta", "model.padding_token=0"}};
  for (const std::vector<std::string>& form : forms)
    for (const int n : {1, 2, 3}) {
      SCOPED_TRACE(form[0]);
      const TemporaryFolder place;
      expect_same_bits_in_every_stage(n, 2, [&](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(), form.begin(), form.end());
        return masked_run(place, name, std::move(more));
      });
    }
}

TEST(MaskedLanguageRun, GrowsItsSequencesWhereRowsAreEqualAndSaysSoWhereTheyAreNot) {
  const TemporaryFolder place;
  const std::string growing = "curriculum={type: fixed_discrete, lengths: [8, 16, 24], until: [1, 2]}";
  expect_same_bits_in_every_stage(2, 2, [&](const std::string& name, std::vector<std::string> more) {
    more.push_back(growing);
    return masked_run(place, name, std::move(more));
  });
  const Config config = masked_run(place, "documents", {growing, "data.rows=documents"});
  TrainObserver silent;
  EXPECT_EQ(error_of([&] { train(config, silent); }),
            "curriculum.type: the rows of this task are no sequences of a known length");
  EXPECT_FALSE(std::filesystem::exists(config.run));
}

TEST(MaskedLanguageRun, LearnsThatLinesFollowOneForm) {
  const TemporaryFolder place;
  Recorder told;
  train(masked_run(place, "r",
                   {"steps=120", "eval.every=120", "checkpoint.every=0", "model.dropout=0", "data.rows=documents"}),
        told);
  EXPECT_LT(told.losses.back(), 0.75 * told.losses.front());
}

TEST(MaskedLanguageRun, IsEvaluatedAndFillsMasksAlikeByAnyNumberOfRanks) {
  const TemporaryFolder place;
  train_by(1, masked_run(place, "run", {"data.rows=documents", "task.masking=words"}));
  std::string asked;
  for (int i = 0; i < 17; ++i) asked += concat("line [MASK] of ", i, i % 3 == 0 ? " [MASK]\n" : "\n");
  write_text_file(place / "asked.txt", asked);
  const auto [evaluated, predicted] = expect_same_answers_by_any_ranks(place / "run", place / "asked.txt");
  const double perplexity = number_named(evaluated, "perplexity"), accuracy = number_named(evaluated, "accuracy");
  EXPECT_NEAR(perplexity, std::exp(number_named(evaluated, "validation_loss")), 1e-4 * perplexity);
  EXPECT_TRUE(accuracy >= 0 && accuracy <= 1);
  const Json first = Json::parse(predicted.substr(0, predicted.find('\n')));
  EXPECT_EQ(first.at("example").integer(), 0);
  ASSERT_EQ(first.at("masks").items().size(), 2U);
  const Json::Array& guesses = first.at("masks").items()[0].items();
  ASSERT_EQ(guesses.size(), 5U);
  double before = 1, sum = 0;
  for (const Json& guess : guesses) {
    EXPECT_LE(guess.at("probability").number(), before);
    before = guess.at("probability").number();
    sum += before;
    EXPECT_FALSE(guess.at("token").string().empty());
  }
  EXPECT_LE(sum, 1);
  EXPECT_EQ(std::ranges::count(predicted, '\n'), 17);
}

TEST(MaskedLanguageRun, ReadsMixturesAndFilesOfTokens) {
  const TemporaryFolder place;
  write_text_file(place / "b.jsonl",
                  "{\"text\": \"line 1 of 2\"}\n{\"text\": \"line 33 of 4\"}\n{\"text\": \"of line\"}\n");
  Recorder told;
  train(masked_run(
            place, "mixed",
            {"data.type=mixture", "data.validation=0", "eval.every=0",
             concat("data.mixture=[{path: ", place / "text.txt", ", weight: 3}, {path: ", place / "b.jsonl", "}]")}),
        told);
  EXPECT_EQ(told.losses.size(), 4U);

  const TokenizerPtr tokenizer = load_tokenizer(place / "vocab.txt");
  std::filesystem::create_directories(place / "tokens");
  tokenize_files(testing::context(1), *tokenizer, {.files = {place / "text.txt"}, .out = place / "tokens/corpus.bin"});
  save_tokenizer(place / "tokens/tokenizer.json", *tokenizer);
  Recorder of_tokens;
  const Config config =
      masked_run(place, "tokens_run", {"data.type=tokens", concat("data.path=", place / "tokens/corpus.bin")});
  train(config, of_tokens);
  EXPECT_EQ(of_tokens.losses.size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(config.run + "/tokenizer.json"));
  std::filesystem::remove(place / "tokens/tokenizer.json");
  Recorder silent;
  EXPECT_NE(error_of([&] {
              train(masked_run(place, "none", {"data.type=tokens", concat("data.path=", place / "tokens/corpus.bin")}),
                    silent);
            }).find("tokenizer"),
            std::string::npos);
}

TEST(MaskedLanguageRun, RefusesWhatCannotBeMasked) {
  const TemporaryFolder place;
  const auto expect = [&](std::vector<std::string> settings, std::string_view what) {
    Recorder silent;
    const std::string message = error_of([&] { train(masked_run(place, "r", std::move(settings)), silent); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect({"task.masked=0.7"}, "the shares of tokens that are masked, replaced and kept add up to 0.9, not 1");
  expect({"task.probability=0"}, "task.probability");
  expect({"data.tokenizer=byte"}, "the tokenizer has none of [MASK], <mask> and <|mask|>");
  expect({"task.mask_token=<hole>"}, "task.mask_token: the tokenizer has no token '<hole>'");
  expect({"data.tokenizer=model"}, "there is no model.from whose tokenizer could be taken");
  expect({"model.block=2"}, "model.block is 2, and the tokenizer puts 2 special tokens around each text");
  expect({"data.type=tokens", "task.masking=words"}, "a file of tokens does not say where words begin");
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
  train_by(1, masked_run(place, "run"));
  write_text_file(place / "asked.txt", "line [MASK] of 3\nline 4 of 3\n\n");
  const std::string message = error_of([&] { (void)predicted_by(1, place / "run", place / "asked.txt"); });
  EXPECT_NE(message.find("asked.txt', line 2: the text has no [MASK]; write it where a token shall be guessed"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace keel
