#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "keel/data/token_file.h"
#include "keel/dist/checkpoint/sealed_text.h"
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

TEST(BadInput, ATableOrHeadsThatDoNotFitAreRefused) {
  const Sandbox sandbox;
  std::string table = "a,far,sky\n";
  for (int i = 0; i < 12; ++i) table += concat(i, ',', 2 * i, ',', i % 2 == 0 ? "clear" : "rain", '\n');
  sandbox.write("r.csv", table);
  sandbox.write("v.csv", "a,far,sky\n1,2,clear\n1,2,snow\n");
  sandbox.write(
      "h.yaml",
      "epochs: 1\ntask: {type: supervised}\nmodel:\n  heads: [{name: far}, {name: sky, type: classification}]\n"
      "data: {path: r.csv}\nbatch: {global: 2}\nthreads: 1\n");
  const auto refused = [&](const std::string& heads, const std::string& reason) {
    expect_refused(sandbox, concat("train h.yaml 'model.heads=[", heads, "]'"), reason);
  };
  refused("{name: distance}", "there is no column 'distance'; the columns are a, far, sky");
  refused("{name: far}, {name: far}", "two heads are named 'far'");
  refused("{name: far}, {name: far_r2, columns: [far]}", "the head 'far' has a metric of this name");
  refused("{name: lr, columns: [far]}", "records have keel's own number of this name");
  refused("{name: far, weight: -0.5}", "model.heads[0].weight: expects a number from 0 to 1000000000, got '-0.5'");
  refused("{name: far, loss: crossentropy}", "model.heads[0].loss: expects ");
  expect_refused(sandbox, "train h.yaml data.validation_path=v.csv",
                 "'v.csv', example 1 (from 0 on): 'snow' is none of");
  expect_refused(sandbox, "launch -N 2 --threads h.yaml data.validation_path=v.csv", "'snow' is none of the 2 classes");
  EXPECT_EQ(sandbox.keel("train h.yaml").code, 0);
}

TEST(BadInput, AFileThatHasNoEndOrIsNoneIsRefusedAtOnce) {
  const Sandbox sandbox;
  ASSERT_EQ(::mkfifo((sandbox / "fifo").c_str(), 0600), 0);
  for (const std::string path : {"/dev/zero", "/dev/random", "/dev/full", "fifo"})
    for (const std::string type : {"text", "tokens"}) {
      const Outcome outcome = sandbox.keel(concat("train text.yaml 'data={type: ", type, ", path: ", path, "}'"));
      EXPECT_EQ(outcome.code, 2);
      EXPECT_EQ(outcome.err, concat("keel: error: cannot read '", path, "': it is not a regular file\n"));
    }
}

TEST(BadInput, WhatIsNoTrainingDataMayBeAPipeButHasAnEnd) {
  const Sandbox sandbox;
  expect_refused(sandbox, "train /dev/zero", "holds zero bytes: it is not a text file");
  expect_refused(sandbox, "comm --from /dev/zero", "it is no file, and has more than 67108864 bytes");
  expect_refused(sandbox, "launch -N 2 --hostfile /dev/zero text.yaml", "it is no file, and has more than");
  expect_refused(sandbox, "tokenize /dev/zero --out x.bin", "it is not a regular file");
}

TEST(BadInput, NumbersThatNothingCanHoldAreRefused) {
  const Sandbox sandbox;
  expect_refused(sandbox, "train text.yaml steps=9223372036854775807", "at most 9007199254740992 is possible");
  expect_refused(sandbox, "train text.yaml steps=9007199254740992 'scheduler={type: linear}'",
                 "too long to be tabulated");
  expect_refused(sandbox,
                 "train text.yaml 'scheduler={type: StepLR, step_size: 1, frequency: 9007199254740992, "
                 "interval: epoch, steps_per_epoch: 3}'",
                 "makes more than 9007199254740992 steps");
}

TEST(BadInput, AnEnvironmentThatMakesNoSenseIsRefusedInOneLine) {
  const Sandbox sandbox;
  const auto refused = [&](const std::string& before, const std::string& arguments, const std::string& line) {
    SCOPED_TRACE(before);
    const Outcome outcome = sandbox.keel(arguments, "export " + before);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(outcome.err.ends_with(concat("keel: error: ", line, "\n"))) << outcome.err;  // libgomp may speak first
  };
  for (const std::string wish : {"abc", "0", "-3", "4x", "99999999", "1e9"})
    refused("OMP_NUM_THREADS=" + wish, "train text.yaml threads=0",
            concat("OMP_NUM_THREADS is '", wish, "'; a number of threads, from 1 to 4096, is expected there"));
  refused("KEEL_RANK=0 KEEL_SIZE=99999999 KEEL_ADDRESS=127.0.0.1:9", "train text.yaml",
          "at most 1048576 ranks can find each other by an address, got 99999999");
  for (const std::string wish : {"2", "1,1", ""})
    EXPECT_EQ(sandbox.keel("train text.yaml threads=0 steps=4 run=with" + wish, "export OMP_NUM_THREADS=" + wish).code,
              0);
  EXPECT_EQ(sandbox.keel("launch -N 2 --threads text.yaml run=without", "export TMPDIR=/nowhere").code, 0);
}

TEST(BadInput, ControlCharactersReachNoTerminal) {
  const Sandbox sandbox;
  expect_refused(sandbox, "train text.yaml 'run=\"a\\nb\"'", "run: has characters that cannot be shown");
  expect_refused(sandbox, "train text.yaml 'data.path=\"a\\eb\"'", "data.path: has characters that cannot be shown");
  expect_refused(sandbox, "train \"$(printf 'c\\033[2Jd')\"", "c\\x1b[2Jd");
  expect_refused(sandbox, "train 'c\nd.yaml'", "c\\x0ad.yaml: cannot be opened");
  expect_refused(sandbox, "train text.yaml 'run=a\nb'", "'run=a\\x0ab': run: a value behind KEY= is one line");
  const std::string forged = "'nl\nkeel: error: forged'", shown = "'nl\\x0akeel: error: forged'";
  for (const std::string command :
       {"evaluate ", "checkpoints ", "show ", "predict --input text.yaml --out x ", "plot ", "get --out x ", "data "})
    expect_refused(sandbox, command + forged, shown);
  expect_refused(sandbox, "comm --from 'c\nd.json'", "cannot read 'c\\x0ad.json'");
  expect_refused(sandbox, "generate \"$(printf 'c\\033[2Jd')\" --prompt a", "c\\x1b[2Jd");
  expect_refused(sandbox, "train text.yaml \"$(printf 'st\\033[2Jeps=3')\"", "st\\x1b[2Jeps");
  const std::string longest(100'000, 'x');
  const Outcome cut = sandbox.keel("train " + longest);
  EXPECT_EQ(cut.code, 2);
  EXPECT_LT(cut.err.size(), 5'000u);
  EXPECT_NE(cut.err.find(" more bytes)"), std::string::npos);

  // A file of tensors whose names others made.
  ASSERT_EQ(sandbox.keel("train text.yaml run=made steps=4").code, 0);
  std::string weights = sandbox.read("made/model.safetensors");
  const std::size_t place = weights.find("h.0.");
  ASSERT_NE(place, std::string::npos);
  weights.replace(place, 4, "h\033[J");
  sandbox.write("made/model.safetensors", weights);
  const Outcome outcome = sandbox.keel("generate made --prompt a");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos) << outcome.err;
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

TEST(BadInput, ACheckpointThatIsNotAsItWasWrittenIsRefused) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=made").code, 0);
  const std::string place = "made/checkpoints/step-00000012", manifest = place + "/manifest.json",
                    weights = place + "/model.safetensors";
  const std::string text = sandbox.read(manifest), numbers = sandbox.read(weights);
  const auto refused = [&](const std::string& reason) {
    for (const std::string command : {"train text.yaml steps=13 run=other resume=", "get --out other.safetensors "})
      expect_refused(sandbox, command + place, reason);
  };
  const auto edited = [&](const std::string& old, const std::string& by) {
    const std::size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return std::string(text).replace(at, old.size(), by);
  };
  sandbox.write(manifest, edited("\"step\": 12", "\"step\": 90"));
  refused("'" + manifest + "' has changed since it was written (its hash differs)");
  const std::string later = edited("\"format\": 4", "\"format\": 5");
  sandbox.write(manifest, with_seal(later.substr(0, later.rfind(",\n  \"xxh3\"")) + "\n}\n"));
  refused("it has format 5, and this version of keel reads 2 to 4; a newer one wrote it");
  std::filesystem::remove(sandbox / manifest);
  refused(place);
  // Of another checkpoint of the same run, with as many bytes.
  sandbox.write(manifest, text);
  sandbox.write(weights, sandbox.read("made/checkpoints/step-00000006/model.safetensors"));
  // Parts are read in parallel: any of them may be the first that is seen to differ.
  refused("'" + weights + "' has changed since it was written: the hash of elements 0 to ");
  sandbox.write(manifest, sandbox.read("made/checkpoints/step-00000006/manifest.json"));
  sandbox.write(weights, numbers);
  refused(place);
  sandbox.write(manifest, text);
  EXPECT_EQ(sandbox.keel("train text.yaml run=other steps=13 resume=" + place).code, 0);
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
  expect_refused(sandbox, "generate made --prompt a", "weights of another model");
  std::string bad = weights;
  bad.replace(bad.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));  // a NaN
  sandbox.write("made/model.safetensors", bad);
  expect_refused(sandbox, "generate made --prompt a", "has numbers that are not finite");
  std::filesystem::remove(sandbox / "made/model.safetensors");
  expect_refused(sandbox, "generate made --prompt a", "'made' has no model yet");

  ASSERT_EQ(sandbox.keel("train addition.yaml run=adder").code, 0);
  expect_refused(sandbox, "generate adder --prompt 'Hello'", "Hello");
}

}  // namespace
}  // namespace keel::cli
