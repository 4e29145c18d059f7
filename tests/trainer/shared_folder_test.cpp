// A checkpoint that not all ranks see, as on a file system that shows some of them an older state.

#include "keel/trainer/shared_folder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::TemporaryFolder;

TEST(SharedFolder, SeveralRanksWaitForACheckpointThatComesLater) {
  for (const int n : {2, 3}) {
    const TemporaryFolder place;
    const std::string checkpoint = place / "step-00000001", aside = place / "aside";
    std::filesystem::create_directory(aside);
    write_text_file(aside + "/manifest.json", "{}");
    ASSERT_TRUE(is_checkpoint(aside));
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::filesystem::rename(aside, checkpoint);
    });
    run_ranks(n, [&](Communicator& ranks) {
      check_readable_by_all(checkpoint, ranks);
      EXPECT_TRUE(is_checkpoint(checkpoint)) << n;
    });
    late.join();
  }
}

// A folder that is to be made is looked for by those above it.
TEST(SharedFolder, IsSeenByAllOfItsRanksAndLeftAsItWas) {
  const TemporaryFolder place;
  for (const int n : {1, 2, 3})
    for (const std::string& folder : {place.path(), place / "new", place / "a/b/c", place / "a/../new/"}) {
      run_ranks(n, [&](Communicator& ranks) { check_shared_folder(folder, ranks); });
      EXPECT_TRUE(std::filesystem::is_empty(place.path())) << folder;
    }
}

TEST(SharedFolder, ThatARankDoesNotSeeIsToldWithBothPlacesSoon) {
  const TemporaryFolder place;
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(place / name);
  const auto refusal = [&](int n, const std::string& first, const std::string& others) {
    return testing::error_of([&] {
      run_ranks(n, [&](Communicator& ranks) {
        check_shared_folder(place / (ranks.rank() == 0 ? first : others), ranks, std::chrono::milliseconds(5));
      });
    });
  };
  const std::string told = refusal(2, "a", "b/new");
  EXPECT_NE(refusal(3, "a/new", "b/new"), "");
  EXPECT_NE(refusal(3, "a/new/er", "b/new"), "") << "looked for two levels above";
  EXPECT_EQ(refusal(3, "a/new/er", "a/er/new"), "");
  EXPECT_NE(told.find(concat(" does not see in '", place / "b/new", "' what rank 0 on host ")), std::string::npos)
      << told;
  EXPECT_NE(told.find(concat(" has in '", place / "a", "'; give the run a folder that all hosts share (run=FOLDER)")),
            std::string::npos)
      << told;
  for (const char* name : {"a", "b"}) EXPECT_TRUE(std::filesystem::is_empty(place / name));
}

TEST(SharedFolder, ARankAloneAsksNobodyWhetherItSeesItsCheckpoint) {
  const TemporaryFolder place;
  run_ranks(1, [&](Communicator& ranks) {
    EXPECT_EQ(testing::error_of([&] { check_readable_by_all(place / "none", ranks); }), "");
  });
}

}  // namespace
}  // namespace keel
