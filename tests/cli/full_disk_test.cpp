// Numbers that lie in files, on a disk that has no room for them.

#include <sys/wait.h>

#include <cstdlib>
#include <regex>

#include <gtest/gtest.h>

#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Sandbox;

// A disk of its own in the folder `disk` of the sandbox, as long as a command runs.
class SmallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* each : {"unshare --mount --user --map-root-user", "unshare --mount"})
      if (wrapper_.empty() && run(concat(each, " sh -c 'mkdir -p disk && mount -t tmpfs none disk' 2>/dev/null")) == 0)
        wrapper_ = each;
    if (wrapper_.empty()) GTEST_SKIP() << "the system lets us mount nothing, not even for ourselves (unshare --mount)";
  }
  // The exit code of keel with such a disk of so many KiB; what it printed is in the files out and err.
  int keel(int kibibytes, const std::string& arguments) const {
    return run(concat(wrapper_, " sh -c 'mount -t tmpfs -o size=", kibibytes, "k none disk && ", KEEL_PROGRAM, " ",
                      arguments, " >out 2>err </dev/null'"));
  }
  const Sandbox sandbox_;

 private:
  int run(const std::string& command) const {
    const int status = std::system(concat("cd '", sandbox_ / "", "' && ", command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string wrapper_;
};

constexpr const char* kInFiles =
    " sharding.offload_optimizer=file sharding.offload_parameters=file sharding.offload_gradients=file"
    " sharding.offload_folder=disk/numbers";

TEST_F(SmallDisk, ThatIsFullEndsARunBeforeItsFirstStepInOneLine) {
  for (const std::string start : {"train", "launch -N 2 --threads"}) {
    EXPECT_EQ(keel(64, concat(start, " text.yaml run=made", kInFiles)), 2) << sandbox_.read("err");
    EXPECT_TRUE(std::regex_match(sandbox_.read("err"),
                                 std::regex("keel: error: cannot reserve [0-9]+ bytes from 0 on in a file without a "
                                            "name in 'disk/numbers': No space left on device\n")))
        << sandbox_.read("err");
    EXPECT_FALSE(sandbox_.has("made/metrics.jsonl") && !sandbox_.read("made/metrics.jsonl").empty());
  }
}

// Its room is reserved, so that nothing that others write takes it away.
TEST_F(SmallDisk, ThatHasJustEnoughRoomTrainsToTheBitsOfMemory) {
  EXPECT_EQ(keel(356, concat("train text.yaml run=files", kInFiles)), 0) << sandbox_.read("err");
  EXPECT_EQ(keel(1024, "train text.yaml run=memory"), 0) << sandbox_.read("err");
  const auto losses = [&](const char* run) {
    std::string text = sandbox_.read(concat(run, "/metrics.jsonl")), all;
    const std::regex loss("\"loss\":[-0-9.e]+");
    for (std::sregex_iterator at(text.begin(), text.end(), loss), end; at != end; ++at) all += at->str() + "\n";
    return all;
  };
  EXPECT_NE(losses("memory"), "");
  EXPECT_EQ(losses("files"), losses("memory"));
}

}  // namespace
}  // namespace keel::cli
