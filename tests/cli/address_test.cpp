// Ranks that are processes and find each other by an address in the environment, started by hand.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cli/sandbox.h"
#include "tests/dist/comm/heard.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::RunningProgram;
using testing::Sandbox;
using Processes = std::vector<std::unique_ptr<RunningProgram>>;

// A port that nobody else is given as long as this exists, though rank 0 may listen there.
class FreePort {
 public:
  FreePort() : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    KEEL_CHECK(::bind(file_, reinterpret_cast<sockaddr*>(&address), length) == 0, "there is no free port");
    ::getsockname(file_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin_port);
  }
  ~FreePort() { ::close(file_); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;
  int number() const { return number_; }

 private:
  int file_, number_ = 0;
};

class AtAnAddress : public ::testing::Test {
 protected:
  Processes start(int n, const std::string& arguments) const {
    Processes processes;
    for (int r = 0; r < n; ++r)
      processes.push_back(std::make_unique<RunningProgram>(
          arguments, sandbox / "",
          concat("export KEEL_RANK=", r, " KEEL_SIZE=", n, " KEEL_ADDRESS=127.0.0.1:", port.number())));
    return processes;
  }
  static std::vector<Outcome> wait(const Processes& processes) {
    std::vector<Outcome> outcomes;
    for (const auto& process : processes) outcomes.push_back(process->wait());
    return outcomes;
  }

  Sandbox sandbox;
  FreePort port;
};

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
