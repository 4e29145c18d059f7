#include "keel/data/text_dataset.h"

#include <gtest/gtest.h>

#include "keel/data/token_file.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::string decoded(const TextDataset& dataset, const Tokens& tokens) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, values);
  return dataset.tokenizer->decode(std::vector<std::uint32_t>(values.begin(), values.end()));
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + " \xc3\xa9\n";
  return text;
}

TEST(TextDataset, PartsTogetherAreTheText) {
  const TemporaryFolder folder;
  const std::string text = lines(100);
  write_text_file(folder / "t.txt", text);
  for (const std::string_view name : plain_tokenizer_names()) {
    const TextDataset dataset = open_text(folder / "t.txt", name, {.validation = 0.1, .block = 8});
    EXPECT_EQ(decoded(dataset, dataset.train) + decoded(dataset, dataset.validation), text);
    const std::int64_t total = dataset.train.size() + dataset.validation.size();
    EXPECT_EQ(dataset.train.size(), static_cast<std::int64_t>(static_cast<double>(total) * 0.9));
    EXPECT_EQ(dataset.train.vocabulary_size(), dataset.tokenizer->vocabulary_size());
  }
  EXPECT_EQ(open_text(folder / "t.txt", "byte", {.validation = 0}).validation.size(), 0);
}

TEST(TextDataset, GivenTokenizerIsUsedAndItsErrorsNameTheFile) {
  const TemporaryFolder folder;
  write_text_file(folder / "t.txt", "abcabcabcX");
  const auto tokenizer = std::make_shared<CharacterTokenizer>(U"Xabc");
  EXPECT_EQ(open_text(folder / "t.txt", tokenizer, {.validation = 0.5}).tokenizer, tokenizer);
  const auto smaller = std::make_shared<CharacterTokenizer>(U"abc");
  const std::string message = error_of([&] { open_text(folder / "t.txt", smaller, {}); });
  EXPECT_NE(message.find("'" + folder / "t.txt" + "': the character \"X\""), std::string::npos) << message;
  write_text_file(folder / "bad.txt", "abc\xff");
  EXPECT_NE(error_of([&] { open_text(folder / "bad.txt", "character", {}); }).find(folder / "bad.txt"),
            std::string::npos);
}

TEST(TextDataset, SaysWhatToDoAboutAUselessText) {
  const TemporaryFolder folder;
  write_text_file(folder / "empty", "");
  write_text_file(folder / "short", std::string(20, 'x'));
  TokenFileWriter(folder / "tokens", 256, "byte").commit();
  const auto message = [&](const std::string& name, const SplitOptions& split) {
    const std::string text = error_of([&] { open_text(folder / name, "byte", split); });
    EXPECT_NE(text.find(folder / name), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(message("none", {}).find("No such file"), std::string::npos);
  EXPECT_NE(message("empty", {}).find("is empty"), std::string::npos);
  EXPECT_NE(message("tokens", {}).find("is a token file"), std::string::npos);
  EXPECT_NE(message("short", {.block = 18}).find("a block of 18 needs 19"), std::string::npos);
  EXPECT_NE(message("short", {.validation = 0.05}).find("must be 2"), std::string::npos);
  EXPECT_NO_THROW(open_text(folder / "short", "byte", {.block = 17}));
  for (const double fraction : {1.0, 1.5, -0.1})
    EXPECT_NE(error_of([&] { open_text(folder / "short", "byte", {.validation = fraction}); }).find("be in [0, 1)"),
              std::string::npos);
  EXPECT_NO_THROW(open_text(folder / "short", "byte", {.validation = 0.1}));  // of two tokens
  EXPECT_NE(error_of([&] { open_tokens(folder / "tokens", {.block = 2}); }).find("with at least 3 tokens"),
            std::string::npos);
  EXPECT_FALSE(error_of([&] { open_text(folder / "short", "byte", {.block = 0}); }).empty());
  EXPECT_FALSE(error_of([&] { open_text(folder / "short", "bite", {}); }).empty());
}

TEST(TextDataset, OpensATokenFileWithTheTokenizerBesideIt) {
  const TemporaryFolder folder;
  const std::string text = lines(50);
  const auto tokenizer = CharacterTokenizer::of_text(text);
  TokenFileWriter writer(folder / "t.tokens", tokenizer.vocabulary_size(), "character");
  writer.append(tokenizer.encode(text));
  writer.commit();
  EXPECT_EQ(open_tokens(folder / "t.tokens", {}).tokenizer, nullptr);

  save_tokenizer(folder / "tokenizer.json", tokenizer);
  const TextDataset dataset = open_tokens(folder / "t.tokens", {.validation = 0.25, .block = 8});
  EXPECT_EQ(decoded(dataset, dataset.train) + decoded(dataset, dataset.validation), text);

  save_tokenizer(folder / "tokenizer.json", ByteTokenizer());
  EXPECT_NE(error_of([&] { open_tokens(folder / "t.tokens", {}); }).find("put the right one there"), std::string::npos);
}

TEST(TextDataset, KnowsTheBytesOfATokenFile) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "t.tokens", 256, "byte");
  writer.append(ByteTokenizer().encode("some bytes to train on"));
  writer.commit();
  EXPECT_EQ(open_tokens(folder / "t.tokens", {.block = 4}).tokenizer->name(), "byte");
  EXPECT_FALSE(error_of([&] { open_tokens(folder / "t.tokens", {.block = 64}); }).empty());
  for (const auto& [vocabulary, name] : {std::pair{257, "byte"}, {256, "character"}}) {
    TokenFileWriter other(folder / "t.tokens", vocabulary, name);
    other.append(ByteTokenizer().encode("something else"));
    other.commit();
    EXPECT_EQ(open_tokens(folder / "t.tokens", {.block = 4}).tokenizer, nullptr) << vocabulary << ' ' << name;
  }
}

}  // namespace
}  // namespace keel
