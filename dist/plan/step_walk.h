#pragma once
// A step as a transformer does it: what it computes, and what its UnitSchedule answers. Plans and traces read it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/parallel/unit_split.h"

namespace keel {

// A unit is computed forward or backward, or the engine does something with it.
struct StepEvent {
  enum class Kind : unsigned char { forward, backward_begins, backward, action };
  Kind kind;
  std::size_t unit;
  std::int64_t micro_batch;
  UnitAction::Kind action = {};  // of kind action
};

// All events before the update, of a step after the first.
std::vector<StepEvent> walk_step(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units,
                                 const ShardedOptions& options);

// The path of the module, of those with parameters, whose forward pass is the last; empty where there is none.
std::string last_module(std::span<const FlatBuffer> layout);

// Whether nothing is trained: such a model has forward passes alone, after each of which whole weights are given back
// (Sharded::release_weights()).
bool only_answers(std::span<const UnitSplit> units);

}  // namespace keel
