#include "keel/tokenizers/plain_tokenizers.h"

#include <gtest/gtest.h>

#include "keel/runtime/file.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::string message_has(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos ? "" : "'" + message + "' lacks '" + std::string(part) + "'";
}

std::string every_byte() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  return text;
}

TEST(ByteTokenizer, KeepsEveryByte) {
  const ByteTokenizer tokenizer;
  const std::vector<std::uint32_t> tokens = tokenizer.encode(every_byte());
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_EQ(tokens[i], i);
  EXPECT_EQ(tokenizer.decode(tokens), every_byte());
  EXPECT_EQ(message_has(error_of([&] {
                          tokenizer.decode(std::vector<std::uint32_t>{1, 256});
                        }),
                        "token 256 at position 1"),
            "");
}

TEST(CharacterTokenizer, NumbersTheCharactersInAscendingOrder) {
  const auto tokenizer = CharacterTokenizer::of_text("hello\n\xc3\xa9\xf0\x9f\x9a\xa2 world");
  EXPECT_EQ(tokenizer.vocabulary_size(), 11);
  EXPECT_EQ(tokenizer.encode("\n hello"), (std::vector<std::uint32_t>{0, 1, 4, 3, 5, 5, 6}));
  EXPECT_EQ(tokenizer.encode("\xc3\xa9\xf0\x9f\x9a\xa2"), (std::vector<std::uint32_t>{9, 10}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("whole \xc3\xa9")), "whole \xc3\xa9");
  EXPECT_EQ(message_has(error_of([&] { tokenizer.decode(std::vector<std::uint32_t>{11}); }), "token 11 at position 0"),
            "");
}

TEST(CharacterTokenizer, NamesAnUnknownCharacterWithLineAndColumn) {
  const auto tokenizer = CharacterTokenizer::of_text("abc \n\xc3\xa9");
  const std::string message = error_of([&] { tokenizer.encode("abc\n\xc3\xa9\xc3\xa9 x"); });
  EXPECT_EQ(message_has(message, "\"x\" (U+78) at line 2, column 4"), "");
  EXPECT_EQ(message_has(error_of([&] { tokenizer.encode("\xf0\x9f\x9a\xa2"); }), "U+1F6A2"), "");
}

TEST(CharacterTokenizer, NamesTheByteOfInvalidUtf8) {
  for (const std::string bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                "\xf0\x9f\x9a", "\xff", "\xc3\x28"}) {
    const std::string message = error_of([&] { CharacterTokenizer::of_text("a\nb" + bad); });
    EXPECT_EQ(message_has(message, "byte 3 of the text (line 2, column 2)"), "");
  }
  EXPECT_FALSE(error_of([] { CharacterTokenizer::of_text(""); }).empty());
  EXPECT_EQ(message_has(error_of([] { CharacterTokenizer(U"abdc"); }), "\"d\" (U+64) and \"c\" (U+63) do not"), "");
  EXPECT_EQ(message_has(error_of([] { CharacterTokenizer(U"abb"); }), "\"b\" (U+62) and \"b\" (U+62) do not"), "");
}

TEST(Utf8, RoundTripsEveryCharacter) {
  for (char32_t character = 0; character <= 0x10ffff; ++character) {
    std::string text = "x";
    append_utf8(text, character);
    const CodePoint read = decode_utf8(text, 1);
    if (character >= 0xd800 && character <= 0xdfff) {
      ASSERT_EQ(read.bytes, 0u);
    } else {
      ASSERT_EQ(read.value, character);
      ASSERT_EQ(read.bytes, text.size() - 1);
      ASSERT_TRUE(text.size() == 2 || decode_utf8(text.substr(0, text.size() - 1), 1).bytes == 0);
    }
  }
}

TEST(Tokenizer, EveryKindComesBackFromItsFile) {
  const TemporaryFolder folder;
  const std::string text = "to be, or \"not\" \\ to be\n\t\x01\xc3\xa9\xf0\x9f\x9a\xa2";
  for (const std::string_view name : plain_tokenizer_names()) {
    const auto tokenizer = make_plain_tokenizer(name, text);
    EXPECT_EQ(tokenizer->name(), name);
    save_tokenizer(folder / "tokenizer.json", *tokenizer);
    const auto loaded = load_tokenizer(folder / "tokenizer.json");
    EXPECT_EQ(loaded->name(), name);
    EXPECT_EQ(loaded->vocabulary_size(), tokenizer->vocabulary_size());
    EXPECT_EQ(loaded->encode(text), tokenizer->encode(text));
    EXPECT_EQ(loaded->decode(tokenizer->encode(text)), text);
  }
}

TEST(Tokenizer, FilesAreToldInLinesThatPeopleCanRead) {
  EXPECT_EQ(ByteTokenizer().to_json(), R"({
 "format": "keel tokenizer",
 "type": "byte",
 "version": 1
}
)");
  EXPECT_EQ(CharacterTokenizer(U"ab").to_json(), R"({
 "characters": [
  "a",
  "b"
 ],
 "format": "keel tokenizer",
 "type": "character",
 "version": 1
}
)");
}

TEST(Tokenizer, MalformedFilesAreRefusedWithPathAndReason) {
  const TemporaryFolder folder;
  const std::string start = R"({"format":"keel tokenizer","version":1,"type":)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"format":"keel tokenizer"})", "'version' is missing"},
      {R"({"format":"keel tokenizer","version":2})", "version is 2"},
      {start + "\"bpe\"}", "unknown tokenizer 'bpe'; known are byte, character"},
      {start + "\"character\"}", "'characters' is missing"},
      {start + R"("character","characters":7})", "7 must be a list"},
      {start + R"("character","characters":[7]})", "7 must be a text"},
      {start + R"("character","characters":["ab"]})", "\"ab\" is not one character"},
      {start + R"("character","characters":[]})", "at least one character"},
      {start + R"("character","characters":["b","a"]})", "must ascend"},
      {start + std::string(100000, '['), "not the JSON"},
  };
  for (const auto& [text, reason] : cases) {
    write_text_file(folder / "t.json", text);
    const std::string message = error_of([&] { load_tokenizer(folder / "t.json"); });
    EXPECT_EQ(message_has(message, reason), "");
    EXPECT_EQ(message_has(message, folder / "t.json"), "");
  }
  EXPECT_EQ(message_has(error_of([] { make_plain_tokenizer("bite", "x"); }), "known are byte, character"), "");
}

}  // namespace
}  // namespace keel
