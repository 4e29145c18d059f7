// Whole tokenizers against the Tokenizers library: the golden tokens of tests/golden/tokenizers_pipelines.json.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {
namespace {

using Golden = nlohmann::json;

const Golden& golden_pipelines() {
  static const Golden golden = Golden::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/tokenizers_pipelines.json"));
  return golden;
}

TokenizerPtr tokenizer_of(const Golden& golden) {
  return read_tokenizer_json(golden["file"].get<std::string>(), golden["name"]);
}

// As the golden file has an encoding; offsets are characters.
Golden tokens_of(const Encoding& encoding, const TextPair& texts, bool windows = true) {
  Golden places = Golden::array();
  const auto first = character_offsets(texts.first, encoding.offsets);
  const auto second = character_offsets(texts.second.value_or(""), encoding.offsets);
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const TextSpan place = encoding.sequence_ids[i] == 1 ? second[i] : first[i];
    places.push_back(place.begin);
    places.push_back(place.end);
  }
  Golden row = {encoding.ids, encoding.type_ids, places, encoding.word_ids, encoding.special, encoding.attention};
  if (!windows) return row;
  Golden overflow = Golden::array();
  for (const Encoding& window : encoding.overflow) overflow.push_back(tokens_of(window, texts, false));
  row.push_back(overflow);
  return row;
}

TEST(GoldenPipelines, EncodeAndDecodeTexts) {
  for (const Golden& golden : golden_pipelines()["cases"]) {
    const TokenizerPtr tokenizer = tokenizer_of(golden);
    for (const Golden& row : golden["texts"]) {
      SCOPED_TRACE(golden["name"].get<std::string>() + ": " + row[0].dump());
      const std::string text = row[0];
      const Encoding encoding = tokenizer->encode({text, {}}, {});
      EXPECT_EQ(tokens_of(encoding, {text, {}}), row[1]);
      EXPECT_EQ(tokenizer->decode(encoding.ids), row[2]);
      EXPECT_EQ(tokenizer->decode(encoding.ids, true), row[3]);
    }
  }
}

TEST(GoldenPipelines, EncodePairs) {
  for (const Golden& golden : golden_pipelines()["cases"]) {
    const TokenizerPtr tokenizer = tokenizer_of(golden);
    for (const Golden& row : golden["pairs"]) {
      SCOPED_TRACE(golden["name"].get<std::string>() + ": " + row[0].dump() + row[1].dump());
      const std::string first = row[0], second = row[1];
      const TextPair texts = {first, second};
      EXPECT_EQ(tokens_of(tokenizer->encode(texts, {}), texts), row[2]);
      EXPECT_EQ(tokens_of(tokenizer->encode(texts, {.specials = false, .truncation = {}, .padding = {}}), texts),
                row[3]);
    }
  }
}

TEST(GoldenPipelines, CutPairsIntoWindowsAndPadBatches) {
  const std::map<std::string, Truncation::Strategy> strategies = {
      {"longest_first", Truncation::Strategy::longest_first}, {"only_first", Truncation::Strategy::only_first}};
  const Context context = Context::create({.threads = 2});
  for (const Golden& golden : golden_pipelines()["cases"]) {
    const TokenizerPtr tokenizer = tokenizer_of(golden);
    for (const Golden& row : golden["cut"]) {
      SCOPED_TRACE(golden["name"].get<std::string>() + ": " + row[0].dump() + row[1].dump());
      const Side side = row[1] == "left" ? Side::left : Side::right;
      EncodeOptions options;
      options.truncation = {.length = row[2], .stride = row[3], .strategy = strategies.at(row[0]), .side = side};
      options.padding = {.multiple_of = 4, .side = side, .id = 1};
      const auto texts = row[4].get<std::vector<std::pair<std::string, std::string>>>();
      std::vector<TextPair> pairs;
      for (const auto& [first, second] : texts) pairs.push_back({first, second});
      if (row[5].is_null()) {
        EXPECT_THROW(tokenizer->encode_batch(context, pairs, options), Error);
        continue;
      }
      const std::vector<Encoding> batch = tokenizer->encode_batch(context, pairs, options);
      ASSERT_EQ(batch.size(), row[5].size());
      for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(tokens_of(batch[i], pairs[i]), row[5][i]);
    }
  }
}

TEST(GoldenPipelines, IdsAloneAreThoseOfEncodingsWithoutSpecials) {
  for (const Golden& golden : golden_pipelines()["cases"]) {
    const TokenizerPtr tokenizer = tokenizer_of(golden);
    const TokenizerPtr again = read_tokenizer_json(tokenizer->to_json(), "again");
    for (const Golden& row : golden["texts"]) {
      const std::string text = row[0];
      const std::vector<std::uint32_t> ids = tokenizer->encode(text);
      EXPECT_EQ(ids, tokenizer->encode({text, {}}, {.specials = false, .truncation = {}, .padding = {}}).ids);
      EXPECT_EQ(ids, again->encode(text));
    }
  }
}

}  // namespace
}  // namespace keel
