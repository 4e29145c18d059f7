// Ranks that are processes and find each other by an address in the environment, started by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/cli/at_an_address.h"
#include "tests/dist/comm/heard.h"

namespace keel::cli {
namespace {

using testing::AtAnAddress;
using testing::Outcome;
using testing::Processes;

TEST_F(AtAnAddress, ThreeProcessesTrainAsThreeThreadsDo) {
  const std::string what = "train text.yaml steps=6 batch.global=6 strategy=zero2-fp32 run=";
  for (const Outcome& outcome : wait(start(3, what + "made"))) EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome threads = sandbox.keel(what + "threads --thread-ranks 3");
  ASSERT_EQ(threads.code, 0) << threads.err;
  int files = 0;
  for (const auto& [name, bytes] : sandbox.contents()) {
    if (!name.starts_with("made/") || !name.ends_with(".safetensors")) continue;
    EXPECT_TRUE(sandbox.read("threads" + name.substr(4)) == bytes) << name;
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST_F(AtAnAddress, TheOthersEndAtOnceWhenOneIsKilled) {
  const Processes processes =
      start(3, "train text.yaml steps=1000000 batch.global=6 checkpoint.every=0 eval.every=0 run=made");
  for (int i = 0; i < 6'000 && !(sandbox.has("made/metrics.jsonl") && sandbox.read("made/metrics.jsonl") != ""); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  processes[2]->send(SIGKILL);
  for (const int r : {0, 1}) {
    const Outcome outcome = processes[static_cast<std::size_t>(r)]->wait();
    EXPECT_EQ(outcome.code, 2);
    ASSERT_TRUE(outcome.err.ends_with('\n'));
    const std::string line = outcome.err.substr(0, outcome.err.size() - 1);
    EXPECT_TRUE(testing::is_heard(line, concat("keel: error: ", r == 0 ? "" : "rank 1: ", "rank 2 is gone")));
    EXPECT_NE(outcome.err.find(", step "), std::string::npos) << outcome.err;
  }
}

TEST_F(AtAnAddress, WhatIsWrongIsSaidOnce) {
  std::string said;
  for (const Outcome& outcome : wait(start(3, "train nothing.yaml"))) {
    EXPECT_EQ(outcome.code, 2);
    said += outcome.err;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("nothing.yaml"), std::string::npos) << said;
}

TEST_F(AtAnAddress, HalfOfTheVariablesAreRefused) {
  const Outcome outcome = sandbox.keel("train text.yaml", "export KEEL_RANK=1 KEEL_SIZE=2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("KEEL_RANK, KEEL_SIZE and KEEL_ADDRESS are"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace keel::cli
