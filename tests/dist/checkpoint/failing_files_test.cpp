// Saves of numbers that lie in a file which one rank cannot read any more: all ranks hear of it, and nothing is left.

#include <gtest/gtest.h>

#include <atomic>

#include "keel/dist/comm/agreement.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/runtime/faulty_file.h"

namespace keel {
namespace {

using namespace testing;

TEST(SavesOfFailingFiles, AreErrorsOnAllRanksAndLeaveNoCheckpoint) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    run_ranks(n, [&](Communicator& ranks) {
      std::atomic<bool> is_due = false;
      ShardedOptions options = bf16_stage(2);
      options.sharding.offload_optimizer = Residence::file;
      options.sharding.offload_budget = 60000;
      options.scratch_file = [&](const std::string&) {
        return std::make_unique<FaultyFile>([&](FaultyFile::Call call, std::int64_t) {
          if (is_due && call == FaultyFile::Call::read) throw Error("a bad sector", ErrorKind::io);
        });
      };
      Trained rank(ranks, options);
      rank.train(0, 2);
      is_due = ranks.rank() == n - 1;
      try {
        save_checkpoint(place / "step", rank.engine, ranks, {{"step", 2}});
        ADD_FAILURE() << "rank " << ranks.rank() << " of " << n << " was told nothing";
      } catch (const AgreedError& error) {
        EXPECT_NE(std::string(error.what()).find("a bad sector"), std::string::npos) << error.what();
        EXPECT_EQ(error.kind(), ErrorKind::io);
      }
      is_due = false;
      save_checkpoint(place / "again", rank.engine, ranks, {{"step", 2}});
    });
    EXPECT_EQ(names_of(place.path()), std::vector<std::string>{"again"}) << n;
  }
}

}  // namespace
}  // namespace keel
