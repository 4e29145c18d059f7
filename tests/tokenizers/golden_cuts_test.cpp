// Pre-tokenizers against the Tokenizers library: the golden pieces of tests/golden/tokenizers_cuts.json.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pre_tokenizer.h"

namespace keel {
namespace {

using Golden = nlohmann::json;

Golden golden_cuts() { return Golden::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/tokenizers_cuts.json")); }

Delimiter delimiter_of(const Golden& golden) {
  const std::map<std::string, Delimiter> all = {{"removed", Delimiter::removed},
                                                {"isolated", Delimiter::isolated},
                                                {"merged_with_previous", Delimiter::merged_with_previous},
                                                {"merged_with_next", Delimiter::merged_with_next},
                                                {"contiguous", Delimiter::contiguous}};
  return all.at(golden["delimiter"]);
}

PrependScheme scheme_of(const Golden& golden) {
  const std::map<std::string, PrependScheme> all = {
      {"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}};
  return all.at(golden["scheme"]);
}

PatternPtr pattern_of(const Golden& golden) {
  return golden.contains("literal") ? patterns::literal(golden["literal"])
                                    : patterns::expression(golden["expression"].get<std::string>());
}

PreTokenizerPtr cutter_of(const Golden& golden) {
  using namespace pre_tokenizers;
  const std::string name = golden["name"];
  const auto outer = [&] { return golden["outer"] == "digits" ? digits(true) : whitespace_split(); };
  if (name == "split") return split(pattern_of(golden), delimiter_of(golden), golden["invert"]);
  if (name == "punctuation") return punctuation(delimiter_of(golden));
  if (name == "byte_level") return byte_level(golden["add_prefix_space"], golden["use_regex"]);
  if (name == "metaspace") return metaspace(U'▁', scheme_of(golden), golden["split"]);
  if (name == "whitespace") return whitespace();
  if (name == "whitespace_split") return whitespace_split();
  if (name == "bert") return bert();
  if (name == "char_delimiter") return char_delimiter(U'a');
  if (name == "unicode_scripts") return unicode_scripts();
  if (name == "digits") return digits(golden["individual"]);
  if (name == "fixed_length") return fixed_length(golden["length"]);
  if (name == "byte_level_behind") return sequence({outer(), byte_level(true, true)});
  if (name == "metaspace_behind") return sequence({outer(), metaspace(U'▁', PrependScheme::first, true)});
  ADD_FAILURE() << "no pre-tokenizer is called " << name;
  return sequence({});
}

// Bytes of a text as the number of characters that begin before them.
std::size_t characters_before(std::string_view text, std::uint32_t bytes) {
  const std::string_view before = text.substr(0, bytes);
  return static_cast<std::size_t>(std::ranges::count_if(before, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> texts_of(const Pieces& pieces) {
  std::vector<std::string> all;
  for (const Pieces::Piece& piece : pieces.pieces()) all.emplace_back(pieces.text(piece));
  return all;
}

TEST(GoldenCuts, AreThoseOfTheTokenizersLibraryWithTheirPlaces) {
  const Golden golden = golden_cuts();
  ASSERT_GT(golden["cuts"].size(), 60u);
  Pieces pieces;
  for (const Golden& each : golden["cuts"]) {
    const PreTokenizerPtr cutter = cutter_of(each);
    for (const Golden& row : each["texts"]) {
      const std::string text = row[0];
      SCOPED_TRACE(each["name"].get<std::string>() + " of " + row[0].dump());
      pieces.reset(text, true);
      cutter->cut(pieces);
      EXPECT_EQ(texts_of(pieces), row[1].get<std::vector<std::string>>());
      std::vector<std::size_t> places;
      for (const Pieces::Piece& piece : pieces.pieces()) {
        const TextSpan origin = pieces.origin(piece.bytes);
        places.push_back(characters_before(text, origin.begin));
        places.push_back(characters_before(text, origin.end));
      }
      EXPECT_EQ(places, row[2].get<std::vector<std::size_t>>());
    }
  }
}

TEST(GoldenCuts, AreTheSameWhereOriginsAreNotKept) {
  const Golden golden = golden_cuts();
  Pieces pieces;
  for (const Golden& each : golden["cuts"]) {
    const PreTokenizerPtr cutter = cutter_of(each);
    for (const Golden& row : each["texts"]) {
      pieces.reset(row[0].get<std::string>(), false);
      cutter->cut(pieces);
      EXPECT_EQ(texts_of(pieces), row[1].get<std::vector<std::string>>()) << each["name"] << " of " << row[0];
    }
  }
}

TEST(GoldenCuts, OfReplacedExpressionsAreTheirContent) {
  Pieces pieces;
  const Golden golden = golden_cuts();
  for (const Golden& each : golden["replaced"]) {
    const NormalizerPtr normalizer =
        normalizers::replace_expression(each["expression"].get<std::string>(), each["content"]);
    for (const Golden& row : each["texts"]) {
      pieces.reset(row[0].get<std::string>(), true);
      normalizer->normalize(pieces);
      EXPECT_EQ(pieces.bytes(), row[1].get<std::string>()) << each["expression"] << " of " << row[0];
    }
  }
}

}  // namespace
}  // namespace keel
