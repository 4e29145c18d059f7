#pragma once
// An engine's settings that a SettingTuner chooses: sizes of buckets, prefetching and the algorithm of collectives.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/rank_sums.h"
#include "keel/dist/parallel/setting_tuner.h"
#include "keel/dist/parallel/sharded_options.h"
#include "keel/dist/parallel/unit_schedule.h"

namespace keel {

// The options with what takes the most memory of all that is tried, where so many units have parameters that come and
// go. Equal to them where nothing is tried.
ShardingOptions largest_tried(const ShardedOptions& options, std::size_t sharded_units);

class StepTuning {
 public:
  // `sharding` of the options is what the axes change, `schedule` that of its units. Of sizes that make the same
  // buckets one is tried, and of prefetching what the sharded units have a use for. `algorithms`: the ways of the
  // engine's communicator. `ranks`: all of them; it must outlive this.
  StepTuning(const ShardedOptions& options, const UnitSchedule& schedule, std::span<const std::string> algorithms,
             const Context& context, Communicator& ranks);

  // None: there is nothing to choose.
  std::span<const TunedAxis> axes() const { return tuner_.axes(); }
  bool is_over() const { return tuner_.is_over(); }
  // What is in use until the next step ends.
  ShardingOptions sharding() const;
  std::size_t algorithm() const;  // a way of the communicator

  // The first pass of a step begins; what has begun was no step.
  void step_begins();
  void forget_step() { began_ = 0; }
  // Every rank calls it between two steps. Waits for the device, and for the other ranks once an axis is measured.
  void step_ends();

 private:
  std::vector<TunedAxis> make_axes(const ShardedOptions& options, const UnitSchedule& schedule,
                                   std::span<const std::string> algorithms);
  const TunedAxis* axis(std::string_view name) const;  // null where there is none, or it has not begun

  Context context_;
  ShardingOptions told_;
  std::vector<std::int64_t> buckets_;  // of the values of the axes
  std::vector<int> prefetches_;
  SettingTuner tuner_;
  double waited_ms_ = 0;  // for the times of the others, which belong to no step
  RankSums longest_;
  double began_ = 0;  // the step that runs, in milliseconds; 0: none does
};

}  // namespace keel
