// Models and training against the Tokenizers library: the golden tokens of tests/golden/tokenizers_models.json.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/token_model.h"
#include "keel/tokenizers/train_bpe.h"
#include "tests/tokenizers/space_pre_tokenizer.h"

namespace keel {
namespace {

using Golden = nlohmann::json;
using TextPairs = std::vector<std::pair<std::string, std::string>>;

Golden golden_models() { return Golden::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/tokenizers_models.json")); }

Vocabulary vocabulary_of(const Golden& golden) {
  std::vector<std::pair<std::string, std::uint32_t>> tokens;
  for (const auto& [text, number] : golden.items()) tokens.emplace_back(text, number.get<std::uint32_t>());
  return Vocabulary(std::move(tokens));
}

std::optional<std::string> text_at(const Golden& options, const char* key) {
  return options.contains(key) ? std::optional<std::string>(options[key]) : std::nullopt;
}

TokenModelPtr bpe_of(const Golden& golden) {
  const Golden& options = golden["options"];
  return token_models::bpe(vocabulary_of(golden["vocabulary"]), golden["merges"].get<TextPairs>(),
                           {.unknown = text_at(options, "unk_token"),
                            .continuing_prefix = text_at(options, "continuing_subword_prefix"),
                            .end_suffix = text_at(options, "end_of_word_suffix"),
                            .fuse_unknown = options["fuse_unk"],
                            .byte_fallback = options["byte_fallback"],
                            .ignore_merges = options["ignore_merges"]});
}

TokenModelPtr unigram_of(const Golden& golden) {
  const Golden& options = golden["options"];
  token_models::UnigramOptions unigram;
  if (options.contains("unk_id")) unigram.unknown = options["unk_id"].get<std::uint32_t>();
  unigram.byte_fallback = options["byte_fallback"];
  return token_models::unigram(golden["vocabulary"].get<std::vector<std::pair<std::string, double>>>(), unigram);
}

TokenModelPtr model_of(const Golden& golden) {
  const Golden& options = golden["options"];
  if (golden["kind"] == "bpe") return bpe_of(golden);
  if (golden["kind"] == "unigram") return unigram_of(golden);
  if (golden["kind"] == "word_level")
    return token_models::word_level(vocabulary_of(golden["vocabulary"]), options["unk_token"].get<std::string>());
  return token_models::word_piece(vocabulary_of(golden["vocabulary"]),
                                  {.unknown = options["unk_token"],
                                   .continuing_prefix = options["continuing_subword_prefix"],
                                   .longest_word = options["max_input_chars_per_word"]});
}

// Ids, begins and ends in turn.
std::vector<std::uint32_t> numbers_of(const std::vector<PieceToken>& tokens) {
  std::vector<std::uint32_t> numbers;
  for (const PieceToken& token : tokens) numbers.insert(numbers.end(), {token.id, token.bytes.begin, token.bytes.end});
  return numbers;
}

TEST(GoldenModels, FindTheTokensOfTheTokenizersLibraryOrRefuseWhatItRefuses) {
  const Golden golden = golden_models();
  ASSERT_GT(golden["models"].size(), 25u);
  for (const Golden& each : golden["models"]) {
    const TokenModelPtr model = model_of(each);
    for (const Golden& row : each["pieces"]) {
      const std::string piece = row[0];
      SCOPED_TRACE(each["kind"].dump() + each["options"].dump() + " of " + row[0].dump());
      std::vector<PieceToken> tokens;
      std::vector<std::uint32_t> ids;
      if (row[1].is_null()) {
        EXPECT_THROW(model->tokenize(piece, tokens), Error);
        EXPECT_THROW(model->append_ids(piece, ids), Error);
        continue;
      }
      model->tokenize(piece, tokens);
      EXPECT_EQ(numbers_of(tokens), row[1].get<std::vector<std::uint32_t>>());
      std::vector<std::uint32_t> twice;
      for (int time = 0; time < 2; ++time) {
        for (const PieceToken& token : tokens) twice.push_back(token.id);
        model->append_ids(piece, ids);  // the second time from its memory
      }
      EXPECT_EQ(ids, twice);
    }
  }
}

TEST(GoldenModels, AreTrainedToTheTokensAndMergesOfTheTokenizersLibrary) {
  const Golden golden = golden_models();
  for (const Golden& each : golden["training"]) {
    const Golden& options = each["options"];
    SCOPED_TRACE(options.dump());
    BpeTrainer trainer(Context::create({.threads = 2}), std::make_shared<testing::SpacePreTokenizer>(),
                       {.vocabulary_size = options["vocabulary_size"],
                        .min_frequency = options["min_frequency"],
                        .specials = options["specials"],
                        .longest_token = options["longest_token"],
                        .all_bytes = options["all_bytes"]});
    for (const Golden& text : each["texts"]) trainer.feed(text.get<std::string>());
    const TrainedBpe trained = trainer.train();
    EXPECT_EQ(trained.tokens, each["tokens"].get<std::vector<std::string>>());
    EXPECT_EQ(trained.merges, each["merges"].get<TextPairs>());
  }
}

}  // namespace
}  // namespace keel
