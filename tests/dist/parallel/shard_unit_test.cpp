// How a unit ends while its weights still travel.

#include "keel/dist/parallel/shard_unit.h"

#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>

#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Rank 1 does not send its part before rank 0's unit has gone.
TEST(ShardUnit, WaitsForTravellingWeightsAtItsEndUnlessAnExceptionPasses) {
  for (const bool throws : {false, true}) {
    std::latch has_gone(1);
    std::vector<std::string> told;
    const auto run = [&](Communicator& comm) {
      const LogSink log = [&](LogLevel, std::string_view message) { told.emplace_back(message); };
      const Context context = comm.rank() == 0 ? Context::create({.threads = 1, .log = log}) : testing::context(1);
      UnitNet net(kWidth, 1);
      std::vector<FlatBuffer> layouts = lay_out(net, comm.size());
      try {
        const ShardedOptions options = stage(1);
        EngineTimes times(context);
        const RankPlace place{.ranks = 2, .rank = comm.rank()};
        ShardUnit unit(std::move(layouts.front()), {options, times, context, {comm}, place}, 0);
        if (comm.rank() == 1) has_gone.wait();
        else unit.parameters().share_updates();
        if (comm.rank() == 0 && throws) throw std::runtime_error("something else");
      } catch (const std::runtime_error&) {}
      if (comm.rank() == 0) has_gone.count_down();
    };
    run_ranks(2, run, {.shared_memory = false, .timeout = std::chrono::milliseconds(100)});
    ASSERT_EQ(told.size(), throws ? 0u : 1u);
    for (const std::string& line : told) EXPECT_TRUE(line.starts_with("a gather of layers.0 did not end: ")) << line;
  }
}

}  // namespace
}  // namespace keel
