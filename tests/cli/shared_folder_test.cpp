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
  for (int i = 0; i < 6000 && !(sandbox.has("made/metrics.jsonl") && !sandbox.read("made/metrics.jsonl").empty()); ++i)
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

TEST_F(SharedFolder, WithAnotherFileToValidateOnForOneRankIsOneLineThatNamesItToTrainAndToEvaluate) {
  std::filesystem::create_directory(sandbox / "node");
  sandbox.write("v.txt", sandbox.read("corpus.txt").substr(0, 300));
  sandbox.write("node/v.txt", sandbox.read("corpus.txt").substr(100, 300));
  for (const char* file : {"corpus.txt", "text.yaml"})
    std::filesystem::copy_file(sandbox / file, concat(sandbox / "node/", file));
  const std::vector<std::string> folders = {sandbox / "", sandbox / "node"};
  const auto expect_refused = [&](const std::string& command) {
    std::string said;
    for (const Outcome& outcome : wait(start(command, folders))) {
      EXPECT_EQ(outcome.code, 2) << command;
      said += outcome.err;
    }
    EXPECT_TRUE(std::regex_match(
        said, std::regex("keel: error: ranks find different data at 'v.txt', the validation set: rank 0 has ([0-9]+ "
                         "tokens), [0-9a-f]{16}, rank 1 has \\1, [0-9a-f]{16}; .*data.allow_changes=true\n")))
        << said;
  };
  const std::string train = concat("train text.yaml data.validation_path=v.txt run=", sandbox / "made");
  expect_refused(train);
  EXPECT_FALSE(sandbox.has("made"));
  EXPECT_EQ(sandbox.keel(train).code, 0);
  expect_refused(concat("evaluate ", sandbox / "made"));
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

// As where the run's folder lies on the own disk of each host.
struct OwnFolder : AtAnAddress {
  OwnFolder() {
    std::filesystem::create_directory(sandbox / "node");
    for (const char* file : {"corpus.txt", "text.yaml"})
      std::filesystem::copy_file(sandbox / file, concat(sandbox / "node/", file));
  }

  // Three ranks, of which rank 1 works in a folder of its own; what they say.
  std::string said_by(const std::string& arguments, int code) {
    std::string said;
    const std::vector<std::string> folders = {sandbox / "", sandbox / "node", sandbox / ""};
    for (const Outcome& outcome : wait(start("train text.yaml batch.global=6 steps=12 " + arguments, folders))) {
      EXPECT_EQ(outcome.code, code) << outcome.err;
      said += outcome.err;
    }
    return said;
  }
  static void expect_named(const std::string& said, const std::string& what, const std::string& end) {
    const std::string line = concat("keel: error: rank 1: host (\\S+) does not see in '[^']*/node", what,
                                    "' what rank 0 on host \\1 has in '[^']*", what, "'; ", end, "\n");
    EXPECT_TRUE(std::regex_match(said, std::regex(line))) << said;
  }
};

TEST_F(OwnFolder, OfARankIsOneLineWithItsHostBeforeAnythingIsWritten) {
  const auto before = sandbox.contents();
  expect_named(said_by("run=made", 2), "", "give the run a folder that all hosts share \\(run=FOLDER\\)");
  EXPECT_TRUE(sandbox.contents() == before);
}

TEST_F(OwnFolder, WithACopyOfTheRunIsOneLineWithItsHostWhereItGoesOn) {
  EXPECT_EQ(sandbox.keel("train text.yaml batch.global=6 run=made --thread-ranks 3").code, 0);
  std::filesystem::copy(sandbox / "made", sandbox / "node/made", std::filesystem::copy_options::recursive);
  const auto before = sandbox.contents();
  expect_named(said_by("run=made resume=auto steps=15", 2), "/made",
               "give the run a folder that all hosts share \\(run=FOLDER\\)");
  const auto after = sandbox.contents();
  for (const auto& [name, bytes] : before)
    EXPECT_TRUE(after.contains(name) && (after.at(name) == bytes || name.find("/logs/") != std::string::npos)) << name;
  EXPECT_EQ(after.size(), before.size());
}

TEST_F(OwnFolder, WithoutTheCheckpointToGoOnFromIsOneLineAndACopyOfItIsEnough) {
  EXPECT_EQ(sandbox.keel("train text.yaml batch.global=6 run=made steps=6 --thread-ranks 3").code, 0);
  const std::string from = "made/checkpoints/step-00000006", run = concat("resume=", from, " run=", sandbox / "other");
  expect_named(said_by(run, 2), "/" + from, "give a checkpoint that all hosts share, or a copy to each");
  EXPECT_FALSE(sandbox.has("other/config.yaml"));
  std::filesystem::create_directories(sandbox / "node/made/checkpoints");
  std::filesystem::copy(sandbox / from, concat(sandbox / "node/", from));
  EXPECT_EQ(said_by(run, 0), "");
}

// One line, from a program that a shell starts after `before`.
void expect_refused_after(const Sandbox& sandbox, const std::string& before, const std::string& start,
                          const std::string& reason) {
  for (const char* arguments :
       {"train text.yaml", "launch -N 2 --threads text.yaml", "launch -N 2 --tcp --restarts 1 text.yaml"}) {
    sandbox.write("script", concat(before, "\n", start, " '", KEEL_PROGRAM, "' ", arguments,
                                   " run=place/made >out 2>err && code=0 || code=$?\necho $code >code\n"));
    const std::string wrap =
        before.find("mount ") == std::string::npos ? "" : "unshare --user --map-root-user --mount ";
    std::filesystem::remove(sandbox / "code");
    std::system(concat("cd '", sandbox / "", "' && ", wrap, "sh -e script 2>why >/dev/null").c_str());
    if (!sandbox.has("code")) GTEST_SKIP() << "not possible here: " << sandbox.read("why");
    EXPECT_EQ(sandbox.read("code"), "2\n") << arguments;
    EXPECT_EQ(sandbox.read("err"), concat("keel: error: cannot make the folder 'place/made': ", reason, "\n"));
  }
}

TEST(FolderWithoutRights, IsOneLineOnAFileSystemThatIsReadOnly) {
  const Sandbox sandbox;
  expect_refused_after(sandbox, "mkdir -p place\nmount -t tmpfs tmpfs place\nmount -o remount,ro place", "",
                       "Read-only file system");
}

// The superuser may write everywhere, so another user tries.
TEST(FolderWithoutRights, IsOneLineWhereTheUserMayNotWrite) {
  const Sandbox sandbox;
  const std::string start = ::geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups" : "";
  if (!start.empty() && std::system(concat(start, " test -x '", KEEL_PROGRAM, "' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "root may write everywhere, and no other user can start " << KEEL_PROGRAM;
  std::filesystem::permissions(sandbox / "", std::filesystem::perms(0755));
  expect_refused_after(sandbox, "mkdir -p place\nchmod 555 place\ntouch out err\nchmod 666 out err", start,
                       "Permission denied");
}

}  // namespace
}  // namespace keel::cli
