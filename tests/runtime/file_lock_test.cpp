#include "keel/runtime/file_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using State = FileLock::State;

TEST(FileLock, IsOfOneHolderAtATimeAndGoesWithIt) {
  const TemporaryFolder folder;
  const std::string path = folder / "lock";
  std::optional<FileLock> first(path);
  EXPECT_EQ(first->state(), State::held);
  EXPECT_TRUE(first->is_in_place());
  for (int i = 0; i < 2; ++i) {
    const FileLock second(path);
    EXPECT_EQ(second.state(), State::taken);
    EXPECT_TRUE(second.holder().starts_with(concat("process ", ::getpid(), " on host "))) << second.holder();
  }
  EXPECT_TRUE(first->is_in_place()) << "who is refused takes nothing away";
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(FileLock(path).state(), State::held);
  EXPECT_NE(error_of([&] { FileLock(folder / "none/lock"); }).find(folder / "none/lock"), std::string::npos);
}

TEST(FileLock, GoesWithAProcessThatIsKilled) {
  const TemporaryFolder folder;
  const std::string path = folder / "lock";
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(path);
    for (;;) ::pause();
  }
  while (!std::filesystem::exists(path) || read_text_file(path).empty()) ::usleep(1000);
  {
    const FileLock refused(path);
    EXPECT_EQ(refused.state(), State::taken);
    EXPECT_TRUE(refused.holder().starts_with(concat("process ", child, " on host "))) << refused.holder();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(FileLock(path).state(), State::held);
}

TEST(FileLock, KnowsThatItsFileIsGoneOrAnother) {
  const TemporaryFolder folder;
  const std::string path = folder / "lock";
  const FileLock lock(path);
  std::filesystem::remove(path);
  EXPECT_FALSE(lock.is_in_place());
  const auto another = std::make_unique<FileLock>(path);
  EXPECT_EQ(another->state(), State::held);
  EXPECT_FALSE(lock.is_in_place());
  EXPECT_TRUE(another->is_in_place());
}

}  // namespace
}  // namespace keel
