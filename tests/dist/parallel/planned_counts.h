#pragma once
// A plan against what the engine counts.

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <mutex>
#include <string>

#include "keel/dist/plan/rank_plan.h"

namespace keel::testing {

// Of one rank: takes two steps, and compares the second one's counts with the plan.
class PlannedCounts {
 public:
  PlannedCounts(const RankPlan& plan, const Sharded& engine) : plan_(plan), engine_(engine) {
    for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i] = current(kKept[i]);
  }

  void expect_of(const std::function<void()>& take_step, std::mutex& mutex, const std::string& what) {
    take_step();
    const PageTraffic before = engine_.file_traffic();
    const std::int64_t sent = engine_.data_traffic().sent(), control = engine_.control_traffic().sent();
    engine_.context().allocator().reset_peaks();
    take_step();
    const std::lock_guard lock(mutex);
    const ShardedOptions& options = engine_.options();
    SCOPED_TRACE(concat(what, ", stage ", options.sharding.stage, ", ", options.micro_batches, " micro-batches, rank ",
                        engine_.rank(), " of ", engine_.size()));
    const MemoryPlan& memory = plan_.memory;
    EXPECT_EQ(memory.parameter, kept_[0]);
    EXPECT_EQ(memory.gradient, kept_[1]);
    EXPECT_EQ(memory.optimizer, kept_[2]);
    EXPECT_EQ(memory.buckets, static_cast<std::int64_t>(engine_.context().memory()[Purpose::bucket].peak));
    EXPECT_EQ(memory.file, engine_.file_bytes());
    EXPECT_EQ(plan_.traffic.file_read, engine_.file_traffic().read - before.read);
    EXPECT_EQ(plan_.traffic.file_written, engine_.file_traffic().written - before.written);
    EXPECT_EQ(plan_.traffic.sent(), engine_.data_traffic().sent() - sent);
    EXPECT_EQ(plan_.traffic.control, engine_.control_traffic().sent() - control);
  }
  std::int64_t current(Purpose purpose) const {
    return static_cast<std::int64_t>(engine_.context().memory()[purpose].current);
  }

 private:
  static constexpr std::array kKept = {Purpose::parameter, Purpose::gradient, Purpose::optimizer};

  const RankPlan& plan_;
  const Sharded& engine_;
  std::array<std::int64_t, kKept.size()> kept_ = {};
};

}  // namespace keel::testing
