#pragma once
// What the parts of a unit on one rank are told of where they are.

#include <cstddef>

#include "keel/dist/parallel/axes.h"
#include "keel/dist/parallel/sharded_options.h"
#include "keel/runtime/work_timer.h"

namespace keel {

class Pager;  // keel/dist/parallel/page.h

// What an engine notes of its time.
struct EngineTimes {
  explicit EngineTimes(const Context& context) : codec(context) {}
  double waited_ms = 0;  // in which its thread has waited for collectives
  WorkTimer codec;       // in which numbers were encoded and decoded
};

// All that it names must outlive the unit.
struct UnitSite {
  const ShardedOptions& options;
  EngineTimes& times;
  Context context;
  Axes axes;
  RankPlace place = {};    // this rank's, by the same axes
  bool offload = false;    // masters and optimizer state lie in the processor's memory, and it updates
  int subject = 0;         // the unit's number, as its collectives name it
  Pager* pager = nullptr;  // of what lies in files
  std::size_t number = 0;  // of the unit in the engine
};

}  // namespace keel
