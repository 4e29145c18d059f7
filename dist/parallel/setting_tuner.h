#pragma once
// Chooses settings that change the time of a step and none of its bits, by the time of a run's first steps.
//
// Settings are axes, each of a few values, which are tried one axis after the other: value by value, for some steps. A
// rank measures its own steps; the slowest rank's time is that of a value, and the shortest one wins. The tuner itself
// asks nobody and has no clock: an engine (step_tuning.h) tells it times and those of the other ranks, so that all
// ranks go over to the same value after the same step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// What ShardingOptions::kAutomatic tries, as far as a stage has a use for it, besides Communicator::ways().
struct TuningOptions {
  std::vector<std::int64_t> buckets = {std::int64_t{1} << 20, std::int64_t{4} << 20, std::int64_t{16} << 20,
                                       std::int64_t{25} << 20, std::int64_t{64} << 20};
  std::vector<int> prefetches = {1, 2, 4};
  int steps = 3;  // whose shortest counts, of each value
};

struct TunedAxis {
  std::string name;
  std::vector<std::string> values;  // two at least
  std::vector<double> ms = {};      // of each value, of the slowest rank; empty: not measured yet
  std::size_t value = 0;            // in use once the axis has begun; in the end what was chosen
};

class SettingTuner {
 public:
  // The first step with a value does not count: what the value before it has begun may still go on. Nor does the very
  // first of all.
  SettingTuner(std::vector<TunedAxis> axes, int steps);

  const std::vector<TunedAxis>& axes() const { return axes_; }
  bool is_over() const { return axis_ == axes_.size(); }
  // Those that have been measured, and the one that is: the others are to stay as they were told.
  std::span<const TunedAxis> begun() const { return std::span(axes_).first(std::min(axis_ + 1, axes_.size())); }

  // A step took so long with what is in use, and the values for the next may be others. Returns whether all values of
  // an axis have been measured on this rank: then choose() follows.
  bool step_took(double ms);
  // The times of that axis on this rank, and the longest ones of all ranks.
  std::span<const double> measured() const { return measured_; }
  void choose(std::span<const double> longest);

 private:
  void begin_axis();

  std::vector<TunedAxis> axes_;
  int steps_;
  std::size_t axis_ = 0;  // that is measured
  int ignored_ = 2;       // steps that do not count yet
  int counted_ = 0;       // of the value in use
  std::vector<double> measured_;
};

// What was tried: "1 MiB 12.5 ms, 4 MiB 11.8 ms".
std::string tried_text(const TunedAxis& axis);
// "bucket 4 MiB (1 MiB 12.5 ms, 4 MiB 11.8 ms); prefetch 2 (1 20.1 ms, 2 18.4 ms)"
std::string to_text(std::span<const TunedAxis> axes);

}  // namespace keel
