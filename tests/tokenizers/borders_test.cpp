#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/tokenizers/pipeline.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "keel/tokenizers/train_bpe.h"
#include "keel/tokenizers/trained_json.h"
#include "tests/by_commit.h"

namespace keel {
namespace {

std::string random_lines(std::mt19937& engine, int parts) {
  const std::string_view kinds[] = {"a",    "b",        "word",         "x1",          " ",        "  ", "\n", "\n\n",
                                    "\r\n", "1",        "23",           "'s",          "...",      "!",  "\t", "<s>",
                                    "/",    "\xc3\xa9", "\xe4\xb8\xad", "\xcc\x81",    "\xc2\xa0", "A",  "Bc", "\n a",
                                    "a\nb", "?\n1",     "9\nZ",         "\xe2\x80\xa6"};
  std::string text;
  for (int i = 0; i < parts; ++i) text += kinds[engine() % std::size(kinds)];
  return text;
}

TokenizerPtr trained(const std::string& text) {
  BpeTrainer trainer(Context::create({.threads = 1}), pre_tokenizers::byte_level(false, true),
                     {.vocabulary_size = 330});
  trainer.feed(text);
  return read_tokenizer_json(byte_level_json(trainer.train(), {}), "trained");
}

PipelineParts byte_level_parts(const TokenizerPtr& of, PreTokenizerPtr cuts) {
  const auto& parts = dynamic_cast<const Pipeline&>(*of).parts();
  return {.pre_tokenizer = std::move(cuts), .model = parts.model, .decoder = parts.decoder};
}

PreTokenizerPtr split_and_bytes(std::string_view expression) {
  return pre_tokenizers::sequence({pre_tokenizers::split(patterns::expression(expression), Delimiter::isolated, false),
                                   pre_tokenizers::byte_level(false, false)});
}

// The tokens of a text are those of its parts, cut again and again at the last border.
void expect_equal_parts(const Tokenizer& tokenizer, const std::string& text, int& borders) {
  std::vector<std::uint32_t> parts;
  std::string_view rest = text;
  std::vector<std::string_view> reversed;
  for (std::size_t at; (at = tokenizer.last_border(rest)) > 0 && at < rest.size(); rest = rest.substr(0, at), ++borders)
    reversed.push_back(rest.substr(at));
  reversed.push_back(rest);
  for (auto part = reversed.rbegin(); part != reversed.rend(); ++part)
    for (const std::uint32_t id : tokenizer.encode(*part)) parts.push_back(id);
  ASSERT_EQ(parts, tokenizer.encode(text)) << ::testing::PrintToString(text);
}

TEST(Borders, CutNoPieceOfTheTokenizersThatHaveThem) {
  std::mt19937 engine = testing::by_commit();
  const TokenizerPtr bytes = trained(random_lines(engine, 20000));
  std::vector<TokenizerPtr> all = {bytes};
  for (
      const char* expression :
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"})
    all.push_back(std::make_shared<Pipeline>(byte_level_parts(bytes, split_and_bytes(expression))));
  std::vector<std::pair<std::string, std::uint32_t>> words = {{"[UNK]", 0}};
  for (const char* word : {"a", "b", "word", "x", "1", "##1", "##a", "##b", "!", ".", "23", "s", "'"})
    words.emplace_back(word, words.size());
  PipelineParts bert;
  bert.normalizer = normalizers::bert({});
  bert.pre_tokenizer = pre_tokenizers::bert();
  bert.model = token_models::word_piece(Vocabulary(words), {});
  all.push_back(std::make_shared<Pipeline>(std::move(bert)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    int borders = 0;
    for (int round = 0; round < 500; ++round) expect_equal_parts(*all[i], random_lines(engine, 60), borders);
    EXPECT_GT(borders, 300) << i;
  }
}

TEST(Borders, AreNowhereWhereAComponentLooksAcrossThem) {
  std::mt19937 engine = testing::by_commit();
  const TokenizerPtr bytes = trained(random_lines(engine, 2000));
  const std::string text = "first line.\nsecond line";
  EXPECT_EQ(bytes->last_border(text), 12u);
  for (const PreTokenizerPtr& cuts : {pre_tokenizers::byte_level(true, true), pre_tokenizers::byte_level(false, false),
                                      pre_tokenizers::metaspace(U'\u2581', PrependScheme::always, true),
                                      split_and_bytes(R"(\p{N}{1,3})"), PreTokenizerPtr()})
    EXPECT_EQ(Pipeline(byte_level_parts(bytes, cuts)).last_border(text), 0u);
  PipelineParts with_prefix = byte_level_parts(bytes, pre_tokenizers::byte_level(false, true));
  with_prefix.normalizer = normalizers::prepend("x");
  EXPECT_EQ(Pipeline(std::move(with_prefix)).last_border(text), 0u);
  for (const AddedToken& token :
       {AddedToken{.content = ".\ns", .id = 400}, AddedToken{.content = "s", .id = 400, .lstrip = true}}) {
    PipelineParts with_token = byte_level_parts(bytes, pre_tokenizers::byte_level(false, true));
    with_token.added = AddedTokens({token}, nullptr);
    EXPECT_EQ(Pipeline(std::move(with_token)).last_border(text), 0u);
  }
}

}  // namespace
}  // namespace keel
