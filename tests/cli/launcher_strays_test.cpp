// What a launcher that was killed has left behind, and what one that is at work still needs.

#include "cli/launcher_strays.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/ranks.h"
#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

class LauncherStrays : public ::testing::Test {
 protected:
  static constexpr const char* kNobody = "4194305";  // no process: the system counts no further than 4194304

  std::string session(const std::string& owner, const std::string& process) const {
    const std::string folder = place_ / concat("ompi.", owner, "/pid.", process);
    fs::create_directories(folder + "/0");
    write_text_file(folder + "/contact.txt", "1\n");
    return folder;
  }
  std::string segment(const std::string& owner, const std::string& name) const {
    const std::string file = place_ / concat("vader_segment.", owner, '.', name);
    write_text_file(file, "memory");
    return file;
  }
  void remove() const { remove_launcher_strays(place_.path(), place_.path()); }

  const std::string own_ = concat(host_name(), '.', ::geteuid());
  testing::TemporaryFolder place_;
};

TEST_F(LauncherStrays, OfALauncherThatIsGoneAreRemoved) {
  const std::string folder = session(own_, kNobody), memory = segment(own_, "1.0");
  remove();
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(fs::path(folder).parent_path()));
  EXPECT_FALSE(fs::exists(memory));
}

TEST_F(LauncherStrays, WhatALauncherAtWorkOrAnotherUserOrHostHasStays) {
  const std::string running = session(own_, std::to_string(::getpid())), other_user = session("host.99999", kNobody),
                    no_process = session(own_, "1x"), memory = segment("host.99999", "1.0");
  remove();
  for (const std::string& path : {running, other_user, no_process, memory}) EXPECT_TRUE(fs::exists(path)) << path;
}

// As of a launcher in another container, whose processes are not seen here.
TEST_F(LauncherStrays, WhatSomebodyHasOpenStays) {
  const std::string folder = session(own_, kNobody), memory = segment(own_, "1.0");
  {
    const MappedFile contact(folder + "/contact.txt"), mapped(memory);
    remove();
    EXPECT_TRUE(fs::exists(folder));
    EXPECT_TRUE(fs::exists(memory));
  }
  remove();
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(memory));
}

TEST_F(LauncherStrays, NoneIsNoError) {
  remove_launcher_strays(place_ / "absent", place_ / "absent");
  EXPECT_FALSE(fs::exists(place_ / "absent"));
}

}  // namespace
}  // namespace keel::cli
