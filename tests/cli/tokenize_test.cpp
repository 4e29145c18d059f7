#include <gtest/gtest.h>

#include "keel/data/text_dataset.h"
#include "keel/data/token_file.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

std::string decoded_text(const TextDataset& dataset) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(dataset.train.size()));
  dataset.train.copy(0, values);
  return dataset.tokenizer->decode(std::vector<std::uint32_t>(values.begin(), values.end()));
}

TEST(TokenizeCommand, WritesWhatARunReads) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("tokenize corpus.txt --out corpus.bin");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string text = sandbox.read("corpus.txt");
  EXPECT_EQ(outcome.out, concat("corpus.bin: ", text.size(), " tokens of ", text.size(), " bytes, vocabulary 256\n"));
  EXPECT_EQ(decoded_text(open_tokens(sandbox / "corpus.bin", {.validation = 0})), text);
  EXPECT_FALSE(sandbox.has("tokenizer.json"));
  // The same tokens, so the same losses as from the text.
  ASSERT_EQ(sandbox.keel("train text.yaml run=a").code, 0);
  const Outcome trained = sandbox.keel("train text.yaml run=b 'data={type: tokens, path: corpus.bin}'");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto losses = [&](const std::string& run) {
    std::string found, metrics = sandbox.read(run + "/metrics.jsonl");
    for (std::size_t at = 0; (at = metrics.find("\"loss\":", at)) != std::string::npos; ++at)
      found += metrics.substr(at, metrics.find(',', at) - at);
    return found;
  };
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_NE(losses("a"), "");
}

TEST(TokenizeCommand, CutsNoCharacterBetweenPieces) {
  const Sandbox sandbox;
  std::string text = "x";  // so that a piece of a power of two bytes ends inside a character
  while (text.size() < (3 << 20)) text += "\xe2\x82\xac";
  sandbox.write("euros.txt", text);
  ASSERT_EQ(sandbox.keel("tokenize euros.txt --tokenizer character --out euros.bin").code, 0);
  const TextDataset dataset = open_tokens(sandbox / "euros.bin", {.validation = 0});
  EXPECT_EQ(dataset.tokenizer->name(), "character");
  EXPECT_EQ(decoded_text(dataset), text);
}

TEST(TokenizeCommand, LeavesNothingBehindWhereItCannot) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("tokenize corpus.txt --tokenizer character --out a.bin").code, 0);
  sandbox.write("other.txt", "other characters: \xc3\xa9");
  sandbox.write("empty.txt", "");
  const auto before = sandbox.contents();
  const std::pair<std::string, std::string> cases[] = {
      {"other.txt --tokenizer character --out b.bin", "is another tokenizer"},
      {"empty.txt --out b.bin", "is empty"},
      {"absent.txt --out b.bin", "No such file"},
      {"a.bin --out b.bin", "is a token file already"},
      {"corpus.txt --out b.bin --tokenizer bite", "known are byte, character"},
      {"corpus.txt --out nowhere/b.bin", "nowhere"},
      {"corpus.txt", "--out"},
  };
  for (const auto& [arguments, words] : cases) {
    const Outcome outcome = sandbox.keel("tokenize " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << arguments << ": " << outcome.err;
    EXPECT_EQ(sandbox.contents(), before) << arguments;
  }
}

TEST(TrainCommand, SaysWhatTokensOfAnotherProgramItRead) {
  const Sandbox sandbox;
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i % 65), '\0'};
  sandbox.write("train.bin", tokens);
  const Outcome outcome =
      sandbox.keel("train text.yaml 'data={type: tokens, path: train.bin}' steps=5 model.vocabulary=4096");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string said = outcome.out + outcome.err;
  EXPECT_NE(said.find("'train.bin' was read as a file of nanoGPT's: 2000 tokens of 2 bytes, of a vocabulary of 65"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("model.vocabulary is 4096, but the data has 65 different tokens"), std::string::npos) << said;
}

}  // namespace
}  // namespace keel::cli
