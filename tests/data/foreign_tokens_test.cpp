#include "keel/data/foreign_tokens.h"

#include <gtest/gtest.h>

#include <fstream>

#include "keel/data/text_dataset.h"
#include "keel/data/token_file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// As llm.c's dev/data/data_common.py writes it.
template <class T>
std::string llmc_file(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::int32_t> numbers_of(const Tokens& tokens) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, values);
  return values;
}

TEST(ForeignTokens, OfLlmcAreReadAndNamed) {
  const TemporaryFolder folder;
  write_bytes(folder / "gpt2.bin", llmc_file<std::uint16_t>(20240520, 1, {50256, 3, 40000}));
  const TokenFile gpt2 = open_token_file(folder / "gpt2.bin");
  EXPECT_EQ(numbers_of(gpt2.tokens), (std::vector<std::int32_t>{50256, 3, 40000}));
  EXPECT_EQ(gpt2.tokens.vocabulary_size(), 50257);
  EXPECT_EQ(gpt2.tokenizer, "gpt2");
  EXPECT_NE(gpt2.note.find("llm.c's: 3 tokens of 2 bytes"), std::string::npos) << gpt2.note;
  write_bytes(folder / "llama", llmc_file<std::uint32_t>(20240801, 7, {128255, 0, 70000, 9}));
  const TokenFile llama = open_token_file(folder / "llama");
  EXPECT_EQ(numbers_of(llama.tokens), (std::vector<std::int32_t>{128255, 0, 70000, 9}));
  EXPECT_EQ(llama.tokens.vocabulary_size(), 128256);
}

TEST(ForeignTokens, OfNanogptMayBeginWithALetterOfKeelsMark) {
  const TemporaryFolder folder;
  write_bytes(folder / "train.bin", bytes_of(std::vector<std::uint16_t>{'K', 1, 2, 3, 4}));
  EXPECT_EQ(numbers_of(open_token_file(folder / "train.bin").tokens), (std::vector<std::int32_t>{'K', 1, 2, 3, 4}));
}

TEST(ForeignTokens, OfLlmcThatAreDamagedAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  const std::string good = llmc_file<std::uint16_t>(20240520, 1, {1, 2, 3});
  const std::pair<std::string, std::string> cases[] = {
      {llmc_file<std::uint16_t>(20240520, 2, {1, 2, 3}), "version is 2"},
      {good.substr(0, 500), "fewer than the 1024"},
      {good.substr(0, good.size() - 1), "truncated"},
      {good + "xx", "8 bytes follow"},
      {llmc_file<std::uint16_t>(20240520, 1, {1, 50257, 3}), "token 50257 at position 1"},
  };
  for (const auto& [bytes, reason] : cases) {
    write_bytes(folder / "bad.bin", bytes);
    const std::string message = error_of([&] { open_token_file(folder / "bad.bin"); });
    EXPECT_NE(message.find(reason), std::string::npos) << reason << ": " << message;
    EXPECT_NE(message.find(folder / "bad.bin"), std::string::npos) << message;
  }
}

TEST(ForeignTokens, OfNanoGptEndTheVocabularyWithTheLargest) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens = {5, 64, 0, 7, 300};
  write_bytes(folder / "train.bin", bytes_of(tokens));
  const TokenFile file = open_token_file(folder / "train.bin");
  EXPECT_EQ(numbers_of(file.tokens), (std::vector<std::int32_t>{5, 64, 0, 7, 300}));
  EXPECT_EQ(file.tokens.vocabulary_size(), 301);
  EXPECT_EQ(file.tokenizer, "");
  const TextDataset dataset = open_tokens(folder / "train.bin", {.validation = 0, .block = 2});
  EXPECT_EQ(dataset.tokenizer, nullptr);
  EXPECT_NE(dataset.note.find("nanoGPT's: 5 tokens"), std::string::npos) << dataset.note;
}

TEST(ForeignTokens, AreNotSeenInTextsNorInWhatWasKeelsNorUnderOtherNames) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "good.bin", 256, "byte");
  writer.append(std::vector<std::uint32_t>{1, 2, 3});
  writer.commit();
  const std::string good = read_text_file(folder / "good.bin");
  for (std::size_t at = 0; at < kTokenFileMagic.size(); ++at) {
    std::string damaged = good;
    damaged[at] ^= 1;
    write_bytes(folder / "bad.bin", damaged);
    EXPECT_NE(error_of([&] { open_token_file(folder / "bad.bin"); }).find("does not begin with KEELTOK1"),
              std::string::npos);
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    write_bytes(folder / "bad.bin", good.substr(0, length));
    EXPECT_NE(error_of([&] { open_token_file(folder / "bad.bin"); }), "") << length;
  }
  write_bytes(folder / "text.bin", std::string(100, 'x'));
  EXPECT_NE(error_of([&] { open_token_file(folder / "text.bin"); }), "");
  write_bytes(folder / "tokens.dat", bytes_of(std::vector<std::uint16_t>(100, 1)));
  EXPECT_NE(error_of([&] { open_token_file(folder / "tokens.dat"); }), "");
  write_bytes(folder / "odd.bin", bytes_of(std::vector<std::uint16_t>(100, 1)) + "x");
  EXPECT_NE(error_of([&] { open_token_file(folder / "odd.bin"); }).find("201 bytes are no tokens"), std::string::npos);
}

}  // namespace
}  // namespace keel
