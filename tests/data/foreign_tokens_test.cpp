#include "keel/data/foreign_tokens.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
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
std::string llmc_file(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + bytes_of(tokens);
}
template <class T>
std::string llmc_file(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  return llmc_file(magic, version, static_cast<std::int32_t>(tokens.size()), tokens);
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is written again to the disk
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
      {llmc_file<std::uint16_t>(20240520, 2, {1, 2, 3}), "version is 2; this program reads version 1"},
      {good.substr(0, 12), "it has 12 bytes, fewer than the 1024"},
      {good.substr(0, 1023), "it has 1023 bytes, fewer than the 1024"},
      {good.substr(0, good.size() - 1), "says 3 tokens of 2 bytes, but 5 bytes follow it: it is truncated"},
      {good + "xx", "says 3 tokens of 2 bytes, but 8 bytes follow it"},
      {llmc_file(20240520, 1, -1, std::vector<std::uint16_t>{}), "says -1 tokens of 2 bytes, but 0 bytes follow it"},
      {llmc_file<std::uint16_t>(20240520, 1, {1, 50257, 3}), "token 50257 at position 1"},
  };
  for (const auto& [bytes, reason] : cases) {
    write_bytes(folder / "bad.bin", bytes);
    const std::string message = error_of([&] { open_token_file(folder / "bad.bin"); });
    EXPECT_NE(message.find(reason), std::string::npos) << reason << ": " << message;
    EXPECT_NE(message.find(folder / "bad.bin"), std::string::npos) << message;
    EXPECT_EQ(message.ends_with("truncated"), reason.ends_with("truncated")) << message;
  }
  write_bytes(folder / "none.bin", llmc_file<std::uint16_t>(20240520, 1, {}));
  EXPECT_EQ(open_token_file(folder / "none.bin").tokens.size(), 0);
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

TEST(ForeignTokens, OfNanoGptThatAreTooManyToLookAtHaveGpt2sVocabulary) {
  const TemporaryFolder folder;
  write_bytes(folder / "train.bin", std::string(2, '\0'));
  for (const std::int64_t more : {0, 1}) {
    std::filesystem::resize_file(folder / "train.bin", static_cast<std::uintmax_t>(2 * (kScannedTokens + more)));
    EXPECT_EQ(open_token_file(folder / "train.bin").tokens.vocabulary_size(), more == 0 ? 1 : 50257);
  }
}

TEST(ForeignTokens, OfWhichHalfOfTheFirstBytesAreKeelsMarkAreKeelsThatWereDamaged) {
  const TemporaryFolder folder;
  for (const std::size_t length : {2, 6, 8}) {
    const std::size_t compared = std::min(length, kTokenFileMagic.size());
    for (unsigned same = 0; same < 1u << compared; ++same) {
      std::string bytes(length, '\0');
      for (std::size_t i = 0; i < compared; ++i)
        if (same >> i & 1) bytes[i] = kTokenFileMagic[i];
      write_bytes(folder / "train.bin", bytes);
      const bool is_read = error_of([&] { open_token_file(folder / "train.bin"); }).empty();
      const bool has_zeros = bytes.find('\0') != std::string::npos;  // without them it may be a text
      ASSERT_EQ(is_read, has_zeros && 2 * static_cast<std::size_t>(std::popcount(same)) < compared)
          << length << ' ' << same;
    }
  }
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

TEST(ForeignTokens, OfSeveralFilesAreCountedInTheNote) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  std::string first;
  for (int i = 0; i < 4; ++i) {
    paths.push_back(folder / concat(i, ".bin"));
    // Headers that count from 0 to 3 tokens.
    write_bytes(paths.back(), llmc_file(20240520, 1, std::vector<std::uint16_t>(static_cast<std::size_t>(i), 5)));
    const TokenFile file = open_token_files(paths);
    if (i == 0) first = file.note;
    EXPECT_EQ(file.note, i == 0 ? first : concat(first, "; so were ", i, " more shards"));
    EXPECT_EQ(open_token_file(paths.back()).tokens.size(), i);
    EXPECT_EQ(file.tokens.size(), i * (i + 1) / 2);
  }
}

}  // namespace
}  // namespace keel
