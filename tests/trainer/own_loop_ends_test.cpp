// Where a training loop of one's own ends: before its first step, and after the last one of its data.

#include <gtest/gtest.h>

#include <filesystem>

#include "keel/nn/layers.h"
#include "keel/trainer/own_loop.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

TEST(OwnLoop, WithoutAStepLeavesTheWeightsThatItBeganWith) {
  const TemporaryFolder place;
  for (const int n : {1, 2}) {
    run_ranks(n, [&](Communicator& ranks) {
      const Context context = Context::create({.threads = 1});
      Linear net(2, 1);
      Sharded engine(net, context, ranks, make_adamw());
      OwnRun run(place / concat("run", n), engine, ranks);
      run.end({{"mine", 3}});
      run.end({{"mine", 4}});
    });
    const RunFolder folder(place / concat("run", n));
    EXPECT_EQ(folder.checkpoint_steps(), std::vector<std::int64_t>{0});
    EXPECT_TRUE(std::filesystem::exists(folder.model()));
    run_ranks(n, [&](Communicator& ranks) {
      const Context context = Context::create({.threads = 1});
      Linear net(2, 1);
      Sharded engine(net, context, ranks, make_adamw());
      const OwnRun run(folder.path(), engine, ranks);
      EXPECT_EQ(run.step(), 0);
      EXPECT_EQ(run.state().at("mine").integer(), 3) << "saved once";
    });
  }
}

TEST(OwnLoop, HasNoMicroBatchAfterTheLastStepOfItsData) {
  run_ranks(1, [&](Communicator& ranks) {
    const Context context = Context::create({.threads = 1});
    Linear net(2, 1);
    Sharded engine(net, context, ranks, make_adamw());
    const auto place_of = [](std::int64_t) { return Example().set("place", Numbers{{2}, {1, 2}}); };
    StepBatches batches(make_source(context.host(), made_dataset(5, "places", place_of), sequential(5, 2), stack()),
                        engine, ranks, {.micro = 2});
    for (const std::size_t count : {1, 1, 1, 0, 0}) EXPECT_EQ(batches.next().size(), count);
  });
}

TEST(OwnLoop, KeepsACheckpointAtLeast) {
  const TemporaryFolder place;
  const Context context = Context::create({.threads = 1});
  Linear net(2, 1);
  Sharded engine(net, context, make_adamw());
  const std::string told = error_of([&] {
    run_ranks(1, [&](Communicator& ranks) { const OwnRun run(place / "none", engine, ranks, {.keep = 0}); });
  });
  EXPECT_EQ(told, "keep: 0 checkpoints; at least 1 stays");
  EXPECT_FALSE(std::filesystem::exists(place / "none"));
}

}  // namespace
}  // namespace keel
