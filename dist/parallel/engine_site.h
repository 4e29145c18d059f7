#pragma once
// What the parts of an engine on one rank are told of where they are.

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

// All that it names must outlive whoever keeps it.
struct EngineSite {
  const ShardedOptions& options;
  EngineTimes& times;
  Context context;  // of the model
  Axes axes;
  RankPlace place = {};    // this rank's, by the same axes
  bool offload = false;    // masters and optimizer state lie in the processor's memory, and it updates
  Pager* pager = nullptr;  // of what lies in files; null: nothing does

  // Where the optimizer works.
  Context update_context() const { return offload ? context.host() : context; }
};

// Of one of its units.
struct UnitSite : EngineSite {
  UnitSite(const EngineSite& engine, std::size_t unit) : EngineSite(engine), number(unit) {}
  std::size_t number;  // in the engine
  // The number by which its collectives name it.
  int subject() const { return (options.first_subject + static_cast<int>(number)) & 0xffff; }
};

}  // namespace keel
