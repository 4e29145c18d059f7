// Normalizers and characters against the Tokenizers library: tests/golden/tokenizers_normalizers.json.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/file.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pieces.h"
#include "keel/tokenizers/unicode.h"
#include "tests/tokenizers/sentence_piece_map.h"

namespace {

using keel::CharacterClass;
using keel::NormalizerPtr;
using keel::Pieces;
using keel::TextSpan;
using Strip = keel::normalizers::BertOptions::StripAccents;

const nlohmann::json& golden_normalizers() {
  static const auto golden =
      nlohmann::json::parse(keel::read_text_file(KEEL_SOURCE_DIR "/tests/golden/tokenizers_normalizers.json"));
  return golden;
}

std::map<std::string, NormalizerPtr> normalizers_by_name() {
  namespace n = keel::normalizers;
  const std::string space = "\xe2\x96\x81";
  const std::string map = keel::sentence_piece_map(golden_normalizers()["map"].get<std::string>());
  return {
      {"nfc", n::nfc()},
      {"nfd", n::nfd()},
      {"nfkc", n::nfkc()},
      {"nfkd", n::nfkd()},
      {"lowercase", n::lowercase()},
      {"nmt", n::nmt()},
      {"strip_accents", n::strip_accents()},
      {"byte_level", n::byte_level()},
      {"strip", n::strip(true, true)},
      {"strip left", n::strip(true, false)},
      {"bert", n::bert({})},
      {"bert cased", n::bert({.lowercase = false})},
      {"bert strip", n::bert({false, false, Strip::yes, false})},
      {"llama", n::sequence({n::prepend(space), n::replace_text(" ", space)})},
      {"replace", n::replace_text("aa",
                                  "\xc3\xa9"
                                  "b")},
      {"replace nothing", n::replace_text("", "+")},
      {"precompiled", n::precompiled(map)},
      {"albert",
       n::sequence({n::replace_text("''", "\""), n::nfkd(), n::strip_accents(), n::lowercase(), n::precompiled(map)})},
  };
}

// Where each character of the text begins, and its end.
std::vector<std::uint32_t> borders(std::string_view text) {
  std::vector<std::uint32_t> all;
  for (std::size_t at = 0; at < text.size(); keel::next_character(text, at))
    all.push_back(static_cast<std::uint32_t>(at));
  all.push_back(static_cast<std::uint32_t>(text.size()));
  return all;
}

// The range of the original text for each character, in characters, as the library counts.
std::vector<std::uint32_t> counted_origins(const Pieces& pieces, std::string_view original) {
  std::map<std::uint32_t, std::uint32_t> character_at;
  for (const std::uint32_t border : borders(original)) {
    character_at.emplace(border, static_cast<std::uint32_t>(character_at.size()));
  }
  std::vector<std::uint32_t> counted;
  const auto ends = borders(pieces.bytes());
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    const TextSpan origin = pieces.origin({ends[i], ends[i + 1]});
    counted.push_back(character_at.at(origin.begin));
    counted.push_back(character_at.at(origin.end));
  }
  return counted;
}

TEST(GoldenNormalizers, MakeTheLibrarysTextsAndOrigins) {
  const auto& golden = golden_normalizers();
  const auto made = normalizers_by_name();
  ASSERT_EQ(made.size(), golden["normalizers"].size());
  for (const auto& [name, results] : golden["normalizers"].items()) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE(name + ", text " + std::to_string(i));
      const auto text = golden["texts"][i].get<std::string>();
      Pieces pieces;
      pieces.reset(text, true);
      made.at(name)->normalize(pieces);
      EXPECT_EQ(pieces.bytes(), results[i][0].get<std::string>());
      EXPECT_EQ(counted_origins(pieces, text), results[i][1].get<std::vector<std::uint32_t>>());
    }
  }
}

TEST(GoldenNormalizers, MakeTheSameTextsWithoutOrigins) {
  const auto& golden = golden_normalizers();
  for (const auto& [name, normalizer] : normalizers_by_name()) {
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      Pieces pieces;
      pieces.reset(golden["texts"][i].get<std::string>(), false);
      normalizer->normalize(pieces);
      EXPECT_EQ(pieces.bytes(), golden["normalizers"][name][i][0].get<std::string>()) << name << ", text " << i;
    }
  }
}

TEST(GoldenCharacters, AreWhatTheLibrarySaysTheyAre) {
  for (const auto& character : golden_normalizers()["characters"]) {
    const auto c = character[0].get<char32_t>();
    const CharacterClass is = keel::CharacterTable::get()[c];
    const bool answers[] = {is.is_white_space(), is.is_word(),        is.is_punctuation(), is.is_control(),
                            is.is_accent(),      is.is_bert_accent(), is.is_chinese(),     is.is_number()};
    unsigned bits = 0, bit = 0;
    for (const bool answer : answers) bits |= unsigned{answer} << bit++;
    EXPECT_EQ(bits, character[1].get<unsigned>()) << std::hex << static_cast<std::uint32_t>(c);
  }
}

}  // namespace
