#include "keel/data/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::vector<std::uint32_t> random_tokens(std::size_t count, std::int64_t vocabulary) {
  std::mt19937_64 engine(count);
  std::vector<std::uint32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::uint32_t>(engine() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

std::vector<std::uint32_t> values_of(const Tokens& tokens) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, values);
  return {values.begin(), values.end()};
}

void write_tokens(const std::string& path, std::span<const std::uint32_t> tokens, std::int64_t vocabulary) {
  TokenFileWriter writer(path, vocabulary, "byte");
  writer.append(tokens);
  writer.commit();
}

std::string refusal_of_tokens(const TemporaryFolder& folder, const std::string& contents) {
  std::filesystem::remove(folder / "bad");
  std::ofstream(folder / "bad", std::ios::binary) << contents;
  return error_of([&] { open_token_file(folder / "bad"); });
}

// FNV-1a, written again: the layout of the header is a promise to other programs.
std::string with_hash(std::string file) {
  std::uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < 56; ++i)
    hash = (hash ^ static_cast<unsigned char>(file[static_cast<std::size_t>(i)])) * 1099511628211u;
  return file.replace(56, 8, reinterpret_cast<const char*>(&hash), 8);
}

TEST(TokenFile, RoundTripIsTheIdentityInTheFewestBytes) {
  const TemporaryFolder folder;
  for (const std::int64_t vocabulary : {1ll, 256ll, 65536ll, 65537ll, 1ll << 31}) {
    const std::vector<std::uint32_t> tokens = random_tokens(1001, vocabulary);
    TokenFileWriter writer(folder / "t", vocabulary, "character");
    writer.append(std::span(tokens).first(1));
    writer.append({});
    writer.append(std::span(tokens).subspan(1));
    writer.commit();
    const TokenFile file = open_token_file(folder / "t");
    EXPECT_EQ(file.tokenizer, "character");
    EXPECT_EQ(file.tokens.vocabulary_size(), vocabulary);
    EXPECT_EQ(values_of(file.tokens), tokens);
    EXPECT_EQ(file.tokens[1000], tokens[1000]);
    EXPECT_EQ(std::filesystem::file_size(folder / "t"), 64 + 1001 * (vocabulary <= 65536 ? 2u : 4u));
  }
}

TEST(TokenFile, OfNoTokensIsAFile) {
  const TemporaryFolder folder;
  write_tokens(folder / "t", {}, 10);
  EXPECT_EQ(open_token_file(folder / "t").tokens.size(), 0);
}

TEST(TokenFile, KeepsATokenizersNameOfUpTo23Bytes) {
  const TemporaryFolder folder;
  const std::string longest = "a-tokenizer-of-23-bytes";
  ASSERT_EQ(longest.size(), 23u);
  for (const std::string& name : {std::string(), std::string("x"), longest}) {
    TokenFileWriter(folder / "t", 256, name).commit();
    EXPECT_EQ(open_token_file(folder / "t").tokenizer, name);
  }
  EXPECT_FALSE(error_of([&] { TokenFileWriter(folder / "t", 256, longest + "!"); }).empty());
}

TEST(TokenFile, IsNotWrittenWithATokenOutsideItsVocabulary) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "t", 10, "byte");
  writer.append(std::vector<std::uint32_t>{9, 0});
  EXPECT_NE(error_of([&] {
              writer.append(std::vector<std::uint32_t>{3, 10});
            }).find("token 10 at position 3"),
            std::string::npos);
}

TEST(TokenFile, AppearsOnlyAtCommit) {
  const TemporaryFolder folder;
  { TokenFileWriter(folder / "t", 256, "byte").append(random_tokens(10, 256)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFile, RefusesAWrongHeaderWithPathAndReason) {
  const TemporaryFolder folder;
  write_tokens(folder / "good", random_tokens(100, 256), 256);
  const std::string good = read_text_file(folder / "good");
  ASSERT_EQ(refusal_of_tokens(folder, with_hash(good)), "");
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "0 bytes"},
      {good.substr(0, 63), "fewer than the header's 64"},
      {changed(0, "KEELTOK2"), "does not begin with KEELTOK1"},
      {changed(8, "\3"), "version is 3"},
      {changed(24, "\1"), "damaged"},
      {changed(40, "B"), "damaged"},
      {with_hash(changed(12, "\3")), "have 3 bytes"},
      {with_hash(changed(16, std::string(8, '\0'))), "vocabulary has 0"},
      {with_hash(changed(16, std::string(8, '\xff'))), "vocabulary has 18446744073709551615"},
      {with_hash(changed(31, "\x7f")), "truncated"},
      {with_hash(changed(32, std::string(24, 'n'))), "name has no end"},
      {good.substr(0, good.size() - 2), "truncated"},
      {good.substr(0, good.size() - 1), "should hold 100 tokens"},
      {good + "x", "201 bytes follow the header"},
      {good + "xx", "202 bytes follow the header"},
  };
  for (const auto& [contents, reason] : cases) {
    const std::string message = refusal_of_tokens(folder, contents);
    EXPECT_NE(message.find(reason), std::string::npos) << reason << ": " << message;
    EXPECT_NE(message.find(folder / "bad"), std::string::npos) << message;
    if (contents.size() > good.size()) { EXPECT_TRUE(message.ends_with("follow the header")) << message; }
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(refusal_of_tokens(folder, good.substr(0, length)), "") << length;
  EXPECT_NE(error_of([&] { open_token_file(folder / "none"); }).find("No such file"), std::string::npos);
}

TEST(TokenFile, NamesThePositionOfATokenBeyondTheVocabulary) {
  const TemporaryFolder folder;
  std::vector<std::uint32_t> tokens = random_tokens(100, 50);
  write_tokens(folder / "good", tokens, 50);
  std::string file = read_text_file(folder / "good");
  file[64 + 2 * 37] = 50;
  std::string message = refusal_of_tokens(folder, file);
  EXPECT_NE(message.find("token 50 at position 37 of '" + folder / "bad" + "'"), std::string::npos) << message;

  tokens[99] = 51;
  message = error_of([&] { write_tokens(folder / "t", tokens, 50); });
  EXPECT_NE(message.find("token 51 at position 99"), std::string::npos) << message;
}

// Zeros, but for a token of 60 at position 1000, which its vocabulary of 50 does not have.
void write_damaged(const std::string& path, std::int64_t count) {
  write_tokens(path, {}, 50);
  std::string header = read_text_file(path);
  header.replace(24, 8, reinterpret_cast<const char*>(&count), 8);
  write_text_file(path, with_hash(header));
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(64 + 2 * count));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64 + 2 * 1000);
  file.put(60);
}

TEST(TokenFile, OfManyTokensIsCheckedWhereItIsRead) {
  const TemporaryFolder folder;
  write_damaged(folder / "t", kScannedTokens);
  EXPECT_NE(error_of([&] { open_token_file(folder / "t"); }).find("token 60 at position 1000"), std::string::npos);
  write_damaged(folder / "t", kScannedTokens + 1);
  const Tokens tokens = open_token_file(folder / "t").tokens;
  const Tokens part = tokens.slice(500, kScannedTokens + 1);
  EXPECT_EQ(part[499], 0u);
  EXPECT_NE(error_of([&] { (void)part[500]; }).find("token 60 at position 1000"), std::string::npos);
  EXPECT_NE(error_of([&] { tokens.check(); }).find("position 1000"), std::string::npos);
}

// They are read in pieces of thousands.
TEST(TokenFile, OfManyPiecesIsReadFromAnywhere) {
  const TemporaryFolder folder;
  for (const std::int64_t vocabulary : {1000, 100000}) {
    const std::vector<std::uint32_t> values = random_tokens(30000, vocabulary);
    write_tokens(folder / "t", values, vocabulary);
    const Tokens tokens = open_token_file(folder / "t").tokens;
    for (const auto& [begin, end] : {std::pair{0, 30000}, {1, 8193}, {8191, 16384}, {5, 29999}, {20000, 20001}})
      EXPECT_EQ(values_of(tokens.slice(begin, end)),
                std::vector<std::uint32_t>(values.begin() + begin, values.begin() + end));
  }
  std::vector<std::uint32_t> values = random_tokens(30000, 99999);
  values[20000] = 99999;
  write_tokens(folder / "t", values, 100000);
  std::string file = read_text_file(folder / "t");
  file.replace(16, 3, std::string("\x9f\x86\x01", 3));  // a vocabulary of 99999
  const std::string message = refusal_of_tokens(folder, with_hash(file));
  EXPECT_NE(message.find("token 99999 at position 20000 of "), std::string::npos) << message;
}

TEST(TokenFile, WriterRefusesAnImpossibleHeader) {
  const TemporaryFolder folder;
  EXPECT_FALSE(error_of([&] { TokenFileWriter writer(folder / "t", 0, "byte"); }).empty());
  EXPECT_FALSE(error_of([&] { TokenFileWriter writer(folder / "t", (1ll << 31) + 1, "byte"); }).empty());
  EXPECT_FALSE(error_of([&] { TokenFileWriter writer(folder / "t", 10, std::string(24, 'x')); }).empty());
}

TEST(Tokens, SlicesShareAndKnowTheirBounds) {
  const std::vector<std::uint32_t> values = random_tokens(20, 100);
  const Tokens tokens(values, 100, "values");
  const Tokens part = tokens.slice(5, 15).slice(2, 10);
  EXPECT_EQ(values_of(part), std::vector<std::uint32_t>(values.begin() + 7, values.begin() + 15));
  EXPECT_FALSE(error_of([&] { part.slice(0, 9); }).empty());
  EXPECT_FALSE(error_of([&] { (void)part[8]; }).empty());
  EXPECT_FALSE(error_of([&] { (void)part[-1]; }).empty());
  EXPECT_EQ(Tokens().size(), 0);
  EXPECT_NE(error_of([&] { Tokens(values, 3, "values"); }).find("of 'values'"), std::string::npos);
}

// Version 2: the last four bytes of the name's room are the token that ends a document.
TEST(TokenFile, EndsItsDocumentsWithATokenOfItsVocabulary) {
  const TemporaryFolder folder;
  write_tokens(folder / "good", random_tokens(10, 50), 50);
  std::string file = read_text_file(folder / "good");
  file[8] = 2;
  const auto with_end = [&](std::uint32_t end) {
    return with_hash(std::string(file).replace(52, 4, reinterpret_cast<const char*>(&end), 4));
  };
  for (const std::uint32_t end : {0u, 1u, 49u}) {
    EXPECT_EQ(refusal_of_tokens(folder, with_end(end)), "");
    EXPECT_EQ(open_token_file(folder / "bad").end_of_document, end);
  }
  for (const std::uint32_t end : {50u, 51u, ~0u})
    EXPECT_EQ(refusal_of_tokens(folder, with_end(end)),
              concat("'", folder / "bad", "' is not a valid token file: token ", end,
                     " ends its documents, and is outside of its 50"));
  file[51] = 'n';
  EXPECT_NE(refusal_of_tokens(folder, with_end(0)).find("the tokenizer's name has no end"), std::string::npos);
  file[51] = '\0';
  file[50] = 'n';
  EXPECT_EQ(refusal_of_tokens(folder, with_end(0)), "");
  file[8] = 0;
  EXPECT_NE(refusal_of_tokens(folder, with_end(0)).find("its version is 0"), std::string::npos);
}

TEST(TokenFile, HasAVocabularyUpToTwoToThe31) {
  const TemporaryFolder folder;
  write_tokens(folder / "good", {}, std::int64_t{1} << 31);
  const std::string good = read_text_file(folder / "good");
  EXPECT_EQ(refusal_of_tokens(folder, with_hash(good)), "");
  for (const std::uint64_t wrong : {(std::uint64_t{1} << 31) + 1, std::uint64_t{0}})
    EXPECT_NE(
        refusal_of_tokens(folder, with_hash(std::string(good).replace(16, 8, reinterpret_cast<const char*>(&wrong), 8)))
            .find(concat("its vocabulary has ", wrong, " tokens; 1 to 2147483648 are possible")),
        std::string::npos);
}

}  // namespace
}  // namespace keel
