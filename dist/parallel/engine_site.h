#pragma once
// What the parts of an engine on one rank are told of where they are.

#include <cstddef>
#include <utility>

#include "keel/dist/parallel/axes.h"
#include "keel/dist/parallel/sharded_options.h"
#include "keel/runtime/stopwatch.h"
#include "keel/runtime/work_timer.h"

namespace keel {

class Pager;       // keel/dist/parallel/page.h
struct UnitSplit;  // keel/dist/parallel/unit_split.h

// What an engine notes of its time.
struct EngineTimes {
  explicit EngineTimes(const Context& context) : codec(context) {}
  double waited_ms = 0;  // in which its thread has waited for collectives
  WorkTimer codec;       // in which numbers were encoded and decoded

  // Waits for a collective, and lets go of it.
  void wait(Work& work) {
    const Stopwatch watch(waited_ms);
    std::exchange(work, {}).wait();
  }
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

// The same for one of its units, with its memory and what the rank has of it.
struct UnitSite : EngineSite {
  UnitSite(const EngineSite& engine, std::size_t unit, FlatBuffer& memory, const UnitSplit& own)
      : EngineSite(engine), number(unit), buffer(memory), split(own) {}
  std::size_t number;  // in the engine
  FlatBuffer& buffer;
  const UnitSplit& split;
  // The number by which its collectives name it.
  int subject() const { return (options.first_subject + static_cast<int>(number)) & 0xffff; }
};

}  // namespace keel
