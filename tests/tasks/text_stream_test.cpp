// Texts that are told token by token.

#include "keel/tasks/text_stream.h"

#include <gtest/gtest.h>

#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/utf8.h"
#include "keel/tasks/hub_files.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

using Pieces = std::vector<std::string>;

struct Told {
  Pieces pieces = {};
  std::string text = {};
  bool has_ended = false;
};

Told told_of(const TokenizerPtr& tokenizer, std::string_view prompt, std::span<const std::uint32_t> tokens,
             const Pieces& stops) {
  TextStream stream(tokenizer, tokenizer->encode(prompt), stops);
  Told told;
  for (const std::uint32_t token : tokens) told.pieces.push_back(stream.add(token));
  told.has_ended = stream.has_ended();
  told.pieces.push_back(stream.finish());
  for (const std::string& piece : told.pieces) {
    EXPECT_EQ(find_bad_utf8(piece), std::string_view::npos) << piece;
    told.text += piece;
  }
  return told;
}

Told told_bytes(std::string_view text, const Pieces& stops = {}) {
  const TokenizerPtr bytes = find_tokenizer("byte", "");
  return told_of(bytes, "a prompt ", bytes->encode(text), stops);
}

TEST(TextStream, TellsWholeCharactersAlone) {
  const Told told = told_bytes("a\u00e9\u20ac\U0001f600z");
  EXPECT_EQ(told.pieces, (Pieces{"a", "", "\u00e9", "", "", "\u20ac", "", "", "", "\U0001f600", "z", ""}));
  const TokenizerPtr bytes = find_tokenizer("byte", "");
  const std::vector<std::uint32_t> broken = {'a', 0xff, 'b', 0xe2, 0x82, 'c', 0xf0, 0x9f};
  EXPECT_EQ(told_of(bytes, "", broken, {}).text, "a\ufffdb\ufffdc\ufffd");
}

TEST(TextStream, EndsBeforeAStopThatLiesAcrossTokens) {
  const Told told = told_bytes("one, two\nUser: three", {"\nUser:", "four"});
  EXPECT_TRUE(told.has_ended);
  EXPECT_EQ(told.text, "one, two");
  // What may be the beginning of a stop is told when it is none, or nothing follows.
  EXPECT_EQ(told_bytes("abac", {"abab"}).pieces, (Pieces{"", "", "", "abac", ""}));
  EXPECT_EQ(told_bytes("xaba", {"abab"}).pieces, (Pieces{"x", "", "", "", "aba"}));
  EXPECT_EQ(told_bytes("aababz", {"abab"}).text, "a");
  EXPECT_EQ(told_bytes("abab", {"abab"}).text, "");
  EXPECT_EQ(told_bytes("xyz", {"yz", "xyz"}).text, "") << "the one that begins first";
  EXPECT_EQ(told_bytes("\u20ac\u00e9 \u20ac", {"\u00e9"}).text, "\u20ac");
  const Told whole = told_bytes("nothing of it", {"nothing at"});
  EXPECT_FALSE(whole.has_ended);
  EXPECT_EQ(whole.text, "nothing of it");
}

// As an end is looked for in the whole text, at every length of the stop and at every place.
TEST(TextStream, FindsWhatASearchOfTheWholeTextFinds) {
  const std::string text = "abaababaabbab\u00e9ab\u00e9bab";
  for (std::size_t begin = 0; begin < text.size(); ++begin)
    for (std::size_t size = 1; begin + size <= text.size(); ++size) {
      const std::string stop = text.substr(begin, size);
      if (find_bad_utf8(stop) != std::string_view::npos) continue;
      const Told told = told_bytes(text, {"never", stop});
      EXPECT_EQ(told.text, text.substr(0, text.find(stop))) << stop;
    }
}

// Tokens of which the first in a text is written without the space that others begin with.
TEST(TextStream, WritesTokensAsTheyAreBehindThePrompt) {
  const TokenizerPtr tokenizer = parse_tokenizer(R"({
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
              "vocab": [["<unk>", 0], ["\u2581the", -1], ["\u2581cat", -1], ["s", -1], ["<0xE2>", -9], ["<0x82>", -9], ["<0xAC>", -9]]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": false},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
                                                 "tokenizer.json");
  const std::vector<std::uint32_t> tokens = {2, 3, 4, 5, 6, 1};
  EXPECT_EQ(told_of(tokenizer, "the", tokens, {}).pieces, (Pieces{" cat", "s", "", "", "\u20ac", " the", ""}));
  EXPECT_EQ(told_of(tokenizer, "", tokens, {}).text, "cats\u20ac the");
  EXPECT_EQ(told_of(tokenizer, "the", std::vector<std::uint32_t>{2, 100, 3}, {}).text, " cats")
      << "a number of no token has no text";
}

TEST(TextStream, RefusesAStopThatIsEmpty) {
  EXPECT_NE(error_of([] { told_bytes("a", {"x", ""}); }).find("a stop is empty"), std::string::npos);
}

TEST(EndTokens, AreThoseOfTheFilesBesideAModel) {
  const TemporaryFolder place;
  const std::string folder(place.path());
  EXPECT_TRUE(end_tokens_of(folder).empty());
  write_text_file(place / "config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(end_tokens_of(folder), (std::vector<std::int64_t>{7}));
  write_text_file(place / "generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(end_tokens_of(folder), (std::vector<std::int64_t>{7}));
  write_text_file(place / "generation_config.json", R"({"eos_token_id": [3, 9]})");
  EXPECT_EQ(end_tokens_of(folder), (std::vector<std::int64_t>{3, 9}));
  write_text_file(place / "generation_config.json", R"({"eos_token_id": ["x"]})");
  EXPECT_NE(error_of([&] { end_tokens_of(folder); }).find("generation_config.json': eos_token_id must be a token's"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
