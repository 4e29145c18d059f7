#include "keel/runtime/hub_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::TemporaryFolder;

class HubCache : public ::testing::Test {
 protected:
  HubCache() {
    ::unsetenv("HF_HUB_CACHE");
    ::setenv("HF_HOME", folder_.path().c_str(), 1);
  }
  ~HubCache() override { ::unsetenv("HF_HOME"); }

  std::string add(const std::string& folder, const std::string& revision) const {
    const std::string snapshot = folder_ / "hub/" + folder + "/snapshots/" + revision;
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directories(folder_ / "hub/" + folder + "/refs");
    write_text_file(folder_ / "hub/" + folder + "/refs/main", revision);
    return snapshot;
  }

  TemporaryFolder folder_;
};

TEST_F(HubCache, IsFoundByTheVariablesOfItsPrograms) {
  EXPECT_EQ(hub_cache(), folder_ / "hub");
  ::setenv("HF_HUB_CACHE", "/elsewhere", 1);
  EXPECT_EQ(hub_cache(), "/elsewhere");
  ::unsetenv("HF_HUB_CACHE");
}

TEST_F(HubCache, HasTheSnapshotOfAModelThatMainNames) {
  const std::string small = add("models--gpt2", "abc"), of_a_team = add("models--team--name", "def");
  EXPECT_EQ(hub_folder("gpt2"), small);
  EXPECT_EQ(hub_folder("team/name"), of_a_team);
  for (const char* name : {"", "gpt", "team", "team/other", "../gpt2", "/gpt2", "a/b/c", "team/"})
    EXPECT_EQ(hub_folder(name), "") << name;
  std::filesystem::remove_all(small);
  EXPECT_EQ(hub_folder("gpt2"), "");
}

}  // namespace
}  // namespace keel
