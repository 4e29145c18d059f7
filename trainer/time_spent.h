#pragma once
// What a run has used of its time.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// The clock runs in sessions that have a time_limit. Of a run that got one late it does not know the steps before.
struct TimeSpent {
  double seconds = 0;      // of training, evaluations and checkpoints included
  std::int64_t since = 0;  // steps taken before the clock first ran
  std::int64_t steps = 0;  // steps taken when it showed that
};

}  // namespace keel
