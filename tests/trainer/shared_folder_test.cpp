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

TEST(SharedFolder, ARankAloneAsksNobodyWhetherItSeesItsCheckpoint) {
  const TemporaryFolder place;
  run_ranks(1, [&](Communicator& ranks) {
    EXPECT_EQ(testing::error_of([&] { check_readable_by_all(place / "none", ranks); }), "");
  });
}

}  // namespace
}  // namespace keel
