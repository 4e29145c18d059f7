#include <gtest/gtest.h>

#include <string>

#include "keel/data/text_dataset.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

constexpr const char* kTrain = "tokenizer train corpus.txt --vocabulary 300 --special \"<|end|>\" --out mine";

TEST(TokenizerCommand, TrainsWhatCorporaAndRunsAreEncodedWith) {
  const Sandbox sandbox;
  const Outcome trained = sandbox.keel(kTrain);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("mine/tokenizer.json: 300 tokens, 43 merges"), std::string::npos) << trained.out;
  const TokenizerPtr tokenizer = load_tokenizer(sandbox / "mine");
  const std::string text = sandbox.read("corpus.txt");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->token_of("<|end|>"), 0u);

  const Outcome encoded = sandbox.keel(
      "tokenize corpus.txt --tokenizer mine --end-of-document \"<|end|>\" --out tokens/all.bin", "mkdir tokens");
  ASSERT_EQ(encoded.code, 0) << encoded.err;
  const TextDataset dataset = open_tokens(sandbox / "tokens/all.bin", {.validation = 0});
  std::vector<std::uint32_t> expected = tokenizer->encode(text);
  expected.push_back(0);
  ASSERT_EQ(dataset.train.size(), std::ssize(expected));
  std::vector<std::int32_t> values(expected.size());
  dataset.train.copy(0, values);
  EXPECT_EQ(std::vector<std::uint32_t>(values.begin(), values.end()), expected);
  EXPECT_EQ(dataset.tokenizer->to_json(), tokenizer->to_json());

  const Outcome run = sandbox.keel("train text.yaml data.tokenizer=mine run=a");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(sandbox.read("a/tokenizer.json"), tokenizer->to_json());
  const Outcome generated = sandbox.keel("generate a --prompt \"The quick\" --tokens 5");
  EXPECT_EQ(generated.code, 0) << generated.err;
}

TEST(TokenizerCommand, TrainsTheSameOnAnyNumberOfThreads) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel(std::string(kTrain) + " --threads 1").code, 0);
  ASSERT_EQ(
      sandbox.keel("tokenizer train corpus.txt --vocabulary 300 --special \"<|end|>\" --out other --threads 3").code,
      0);
  EXPECT_EQ(sandbox.read("mine/tokenizer.json"), sandbox.read("other/tokenizer.json"));
}

TEST(TokenizerCommand, ShowsATextCutIntoTokens) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel(kTrain).code, 0);
  const Outcome shown = sandbox.keel("tokenizer show mine \"The quick fox<|end|>\"");
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("<|end|>"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("vocabulary 300"), std::string::npos) << shown.out;
  const Outcome json = sandbox.keel("tokenizer show byte --json \"ab\"");
  const Json rows = Json::parse(json.out);
  ASSERT_EQ(rows.items().size(), 2u);
  EXPECT_EQ(rows.items()[1].at("id").integer(), 'b');
  EXPECT_EQ(rows.items()[1].at("begin").integer(), 1);
}

TEST(TokenizerCommand, SaysWhatIsWrongInALine) {
  const Sandbox sandbox;
  sandbox.write("bad.json", "{\"version\": \"2.0\"}");
  ASSERT_EQ(sandbox.keel(kTrain).code, 0);
  const auto before = sandbox.contents();
  const std::pair<std::string, std::string> cases[] = {
      {"tokenizer show nobody/nothing text", "unknown tokenizer 'nobody/nothing'"},
      {"tokenizer show bad.json text", "bad.json"},
      {kTrain, "is there already"},
      {"tokenizer train absent.txt --out other", "absent.txt"},
      {"tokenizer train corpus.txt --vocabulary 10 --out other", "--vocabulary"},
      {"tokenize corpus.txt --tokenizer mine --end-of-document no --out b.bin", "is no token"},
      {"tokenize corpus.txt --documents page --out b.bin", "known are kind, file, line"},
      {"train text.yaml data.tokenizer=nobody/nothing run=b", "unknown tokenizer 'nobody/nothing'"},
  };
  for (const auto& [arguments, words] : cases) {
    const Outcome outcome = sandbox.keel(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << arguments << ": " << outcome.err;
    EXPECT_EQ(sandbox.contents(), before) << arguments;
  }
}

}  // namespace
}  // namespace keel::cli
