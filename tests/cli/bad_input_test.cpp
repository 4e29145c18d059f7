#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "keel/data/token_file.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

// One clear line with `reason` in it, exit code 2, and no file made or changed.
void expect_refused(const Sandbox& sandbox, const std::string& arguments, const std::string& reason) {
  SCOPED_TRACE(arguments);
  const auto before = sandbox.contents();
  const Outcome outcome = sandbox.keel(arguments);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
  EXPECT_EQ(sandbox.contents(), before);
}

TEST(BadInput, AConfigurationThatDoesNotHoldIsRefused) {
  const Sandbox sandbox;
  sandbox.write("unknown.yaml", "steps: 3\ndata: {path: corpus.txt}\noptimizer:\n  learning_rat: 1e-3\n");
  expect_refused(sandbox, "train unknown.yaml", "unknown.yaml:4: ");
  expect_refused(sandbox, "train unknown.yaml", "optimizer.lr");  // the key that was meant
  expect_refused(sandbox, "train absent.yaml", "absent.yaml");
  expect_refused(sandbox, "train text.yaml stepps=3", "'steps'");
  expect_refused(sandbox, "train text.yaml model.heads=3", "heads");
  expect_refused(sandbox, "train text.yaml device=cuda:0", "cuda:0");
  expect_refused(sandbox, "train addition.yaml model.block=8", "model.block=9");
}

TEST(BadInput, ATextThatCannotBeTrainedOnIsRefused) {
  const Sandbox sandbox;
  sandbox.write("empty.txt", "");
  sandbox.write("short.txt", "seventeen letters");
  sandbox.write("latin1.txt", std::string(200, 'a') + "\xe9" + std::string(200, 'a'));
  expect_refused(sandbox, "train text.yaml data.path=absent.txt", "'absent.txt'");
  expect_refused(sandbox, "train text.yaml data.path=.", "'.'");
  expect_refused(sandbox, "train text.yaml data.path=empty.txt", "'empty.txt' is empty");
  expect_refused(sandbox, "train text.yaml data.path=short.txt", "a block of 16 needs 17");
  expect_refused(sandbox, "train text.yaml data.path=latin1.txt data.tokenizer=character", "'latin1.txt'");
  expect_refused(sandbox, "train text.yaml model.vocabulary=255", "the data has 256 different tokens");
  expect_refused(sandbox, "train text.yaml run=corpus.txt", "corpus.txt");
}

TEST(BadInput, ATokenFileThatIsNotSoundIsRefused) {
  const Sandbox sandbox;
  TokenFileWriter writer(sandbox / "sound.tokens", 300, "byte");
  writer.append(std::vector<std::uint32_t>(400, 7));
  writer.commit();
  const std::string sound = sandbox.read("sound.tokens");
  const auto changed = [&](std::size_t place, char byte) {
    std::string bytes = sound;
    bytes[place] = byte;
    return bytes;
  };
  sandbox.write("magic.tokens", changed(0, 'k'));
  sandbox.write("header.tokens", changed(20, 1));  // the vocabulary's size
  sandbox.write("beyond.tokens", changed(64 + 2 * 150 + 1, 2));
  sandbox.write("cut.tokens", sound.substr(0, sound.size() - 2));
  sandbox.write("tokens.yaml", "steps: 3\nmodel: {layers: 1, heads: 2, width: 32, block: 16}\nthreads: 1\n");
  const auto refused = [&](const std::string& file, const std::string& reason) {
    expect_refused(sandbox, concat("train tokens.yaml data.type=tokens data.path=", file), reason);
  };
  refused("magic.tokens", "does not begin with KEELTOK1");
  refused("header.tokens", "the hash does not match");
  refused("beyond.tokens", "token 519 at position 150 of 'beyond.tokens' is outside the vocabulary of 300");
  refused("cut.tokens", "it is truncated");
  EXPECT_EQ(sandbox.keel("train tokens.yaml data.type=tokens data.path=sound.tokens").code, 0);
}

TEST(BadInput, AFolderThatHoldsARunIsLeftAlone) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=made").code, 0);
  expect_refused(sandbox, "train text.yaml run=made", "'made' holds a run already");
  expect_refused(sandbox, "train addition.yaml run=made", "'made' holds a run already");
  expect_refused(sandbox, "train text.yaml run=made resume=auto model.layers=2", "a checkpoint of another model");
  expect_refused(sandbox, "train text.yaml run=made resume=auto data.tokenizer=character", "another tokenizer");
  expect_refused(sandbox, "train text.yaml run=other resume=made/checkpoints/step-00000007", "step-00000007");
  expect_refused(sandbox, "train text.yaml run=made resume=made/checkpoints/step-00000006", "newer checkpoint");
}

TEST(BadInput, AModelThatCannotGenerateIsRefused) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=made").code, 0);
  expect_refused(sandbox, "generate absent --prompt a", "'absent' is not the folder of a run");
  expect_refused(sandbox, "generate made --prompt ''", "--prompt is empty");
  expect_refused(sandbox, "generate made --prompt a --tokens 0", "--tokens");

  const std::string weights = sandbox.read("made/model.safetensors");
  sandbox.write("made/model.safetensors", weights.substr(0, weights.size() - 4));
  expect_refused(sandbox, "generate made --prompt a", "'made/model.safetensors'");
  sandbox.write("made/model.safetensors", weights.substr(0, 5));
  expect_refused(sandbox, "generate made --prompt a", "'made/model.safetensors'");
  ASSERT_EQ(sandbox.keel("train text.yaml run=other model.width=16").code, 0);
  sandbox.write("made/model.safetensors", sandbox.read("other/model.safetensors"));
  expect_refused(sandbox, "generate made --prompt a", "belong to another model");
  std::filesystem::remove(sandbox / "made/model.safetensors");
  expect_refused(sandbox, "generate made --prompt a", "'made' has no model yet");

  ASSERT_EQ(sandbox.keel("train addition.yaml run=adder").code, 0);
  expect_refused(sandbox, "generate adder --prompt 'Hello'", "Hello");
}

}  // namespace
}  // namespace keel::cli
