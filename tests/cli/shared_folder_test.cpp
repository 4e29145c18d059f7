// Processes that share a run's folder and its data, and what they do where others change them.

#include <algorithm>
#include <chrono>
#include <regex>
#include <thread>
#include <vector>

#include "keel/data/token_file.h"
#include "tests/cli/at_an_address.h"

namespace keel::cli {
namespace {

using testing::AtAnAddress;
using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;

constexpr const char* kForEver = " steps=100000000 checkpoint.every=0 eval.every=0";

void wait_for_steps(const Sandbox& sandbox) {
  for (int i = 0; i < 6000 && !(sandbox.has("made/metrics.jsonl") && sandbox.read("made/metrics.jsonl") != ""); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct SharedFolder : AtAnAddress {};

TEST_F(SharedFolder, IsOfOneRunUntilThatEndsInWhateverWay) {
  RunningProgram first = sandbox.start(concat("train text.yaml run=made", kForEver));
  wait_for_steps(sandbox);
  for (const char* resume : {"auto", "never"}) {
    const Outcome second = sandbox.keel(concat("train text.yaml run=made resume=", resume));
    EXPECT_EQ(second.code, 2);
    EXPECT_TRUE(std::regex_match(second.err, std::regex("keel: error: 'made' is in use by another run, process [0-9]+ "
                                                        "on host [^ ;]+; wait for its end, or give this run another "
                                                        "folder \\(run=OTHER\\)\n")))
        << second.err;
  }
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().code, 128 + SIGKILL);
  EXPECT_TRUE(sandbox.has("made/lock"));
  const Outcome third = sandbox.keel("train text.yaml run=made resume=auto");
  EXPECT_EQ(third.code, 0) << third.err;
  EXPECT_FALSE(sandbox.has("made/lock"));
}

TEST_F(SharedFolder, IsRefusedToTheRanksOfASecondRunOnce) {
  RunningProgram first = sandbox.start(concat("train text.yaml run=made", kForEver));
  wait_for_steps(sandbox);
  std::string said;
  for (const Outcome& outcome : wait(start(3, "train text.yaml batch.global=6 run=made resume=auto"))) {
    EXPECT_EQ(outcome.code, 2);
    said += outcome.err;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(said.starts_with("keel: error: 'made' is in use by another run, process ")) << said;
}

TEST_F(SharedFolder, WithOtherDataForOneRankIsOneLineThatNamesIt) {
  std::string corpus = sandbox.read("corpus.txt");
  corpus[100] = corpus[100] == 'x' ? 'y' : 'x';
  std::filesystem::create_directory(sandbox / "node");
  sandbox.write("node/corpus.txt", corpus);
  std::filesystem::copy_file(sandbox / "text.yaml", sandbox / "node/text.yaml");
  const std::vector<std::string> folders = {sandbox / "", sandbox / "node", sandbox / ""};
  const std::string what = concat("train text.yaml batch.global=6 run=", sandbox / "made");
  std::string said;
  for (const Outcome& outcome : wait(start(what, folders))) {
    EXPECT_EQ(outcome.code, 2);
    said += outcome.err;
  }
  EXPECT_TRUE(std::regex_match(said, std::regex("keel: error: ranks find different data at 'corpus.txt': ranks 0 and 2 "
                                                "have ([0-9]+ tokens), [0-9a-f]{16}, rank 1 has \\1, [0-9a-f]{16}; "
                                                ".*data.allow_changes=true\n")))
      << said;
  EXPECT_FALSE(sandbox.has("made"));
  const testing::Processes allowed = start(what + " data.allow_changes=true", folders);
  for (const Outcome& outcome : wait(allowed)) EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(SharedFolder, WithATokenFileThatIsCutShortEndsAllRanksWithALineAndACheckpoint) {
  TokenFileWriter writer(sandbox / "data.tokens", 300, "byte");
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 40'000; ++i) tokens.push_back(i * i % 251);
  writer.append(tokens);
  writer.commit();
  const auto processes = start(3, concat("train text.yaml 'data={type: tokens, path: data.tokens}' strategy=zero2-fp32 "
                                         "batch.global=6 run=made",
                                         kForEver));
  wait_for_steps(sandbox);
  std::filesystem::resize_file(sandbox / "data.tokens", 64);
  std::string said;
  for (const Outcome& outcome : wait(processes)) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    said += outcome.err;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("cannot read 'data.tokens': it has been cut short to "), std::string::npos) << said;
  EXPECT_TRUE(sandbox.has("made/model.safetensors"));
}

}  // namespace
}  // namespace keel::cli
