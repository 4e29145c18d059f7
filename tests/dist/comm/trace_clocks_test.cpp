// The times of ranks whose nodes have clocks of their own.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/trace.h"

namespace keel {
namespace {

constexpr std::int64_t kHour = std::int64_t{3'600'000'000};

// Tells a clock that is ahead by an hour for each rank before.
class AheadCommunicator : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  Work begin(const Collective& collective) override {
    if (collective.kind == CollectiveKind::all_gather && !std::exchange(has_told_, true)) {
      std::int64_t clock = 0;
      EXPECT_EQ(collective.input.bytes(), sizeof clock);
      std::memcpy(&clock, collective.input.raw(), sizeof clock);
      clock += rank() * kHour;
      std::memcpy(collective.input.raw(), &clock, sizeof clock);
    }
    return CommunicatorDecorator::begin(collective);
  }

 private:
  bool has_told_ = false;
};

TEST(Trace, MovesWhatRanksOfOtherNodesHaveByWhatTheirClocksAreAhead) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0, 1}, {0, 1, 1}, {4, 2, 4}, {1, 1, 1}})
    run_ranks(3,
              [&](Communicator& direct) {
                AheadCommunicator comm(direct);
                const std::int64_t now = Trace::now();
                Trace trace(comm.rank());
                trace.add(TraceRow::compute, "step", now);
                const std::vector<MemoryChange> own = {{.time = now, .rank = comm.rank()}};
                const Recording all = gather_recording(trace, own, comm);
                if (comm.rank() != 0) return;
                ASSERT_EQ(all.spans.size(), 3u);
                ASSERT_EQ(all.memory.size(), 3u);
                const auto hours_before = [&](std::int64_t time) { return (now + kHour / 2 - time) / kHour; };
                for (const std::size_t rank : {0, 1, 2}) {
                  const std::int64_t hours = nodes[rank] == nodes[0] ? 0 : static_cast<std::int64_t>(rank);
                  EXPECT_EQ(hours_before(all.spans[rank].begin), hours);
                  EXPECT_EQ(hours_before(all.spans[rank].end), hours);
                  EXPECT_EQ(hours_before(all.memory[rank].time), hours);
                }
              },
              {.nodes = nodes});
}

}  // namespace
}  // namespace keel
