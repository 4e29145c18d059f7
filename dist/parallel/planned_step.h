#pragma once
// A step of the engine, derived from the layout of a model: which units are gathered, computed and reduced, in what
// order, and what is in memory meanwhile. plan.h and step_trace.h are made from it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "keel/dist/parallel/plan.h"
#include "keel/dist/parallel/unit_schedule.h"

namespace keel {

// One unit on one rank, in elements and bytes.
struct PlannedUnit {
  std::size_t module;  // a number that units of one module have in common
  bool root, trainable;
  bool shards_parameters, shards_gradients;
  bool adds_sums;                    // of several passes, in a shard apart from the rank's own gradient
  std::int64_t whole, shard, owned;  // elements
  std::int64_t value_bytes, gradient_bytes, wire_bytes;  // of an element
  bool converts;                                         // gradients to the wire dtype
  std::optional<CompressionPlan> compression = {};       // where there is error feedback

  // Whether its parameters are sent to the other ranks once they are updated.
  bool shares_updates() const { return trainable && !shards_parameters && owned != whole; }
  // Whether the sums are gathered once they are all there.
  bool gathers_sums() const { return trainable && adds_sums && owned != shard; }
  std::int64_t gradients_kept() const { return shards_gradients ? shard : adds_sums ? whole + shard : whole; }
};

// What plan_rank() and trace_step() ask of their arguments.
void check_planned(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank);

// The units of a model whose shards are spread over `ranks` ranks in each of `groups` groups, as rank `rank` has them.
std::vector<PlannedUnit> plan_units(std::span<const FlatBuffer> layout, const ShardedOptions& options, int ranks,
                                    int rank, int groups);

// Whether nothing is trained: such a model has forward passes alone, after each of which whole weights are given back
// (Sharded::release_weights()).
bool only_answers(std::span<const PlannedUnit> units);

// The collective that gathers all parameters of a unit, so many times.
PlannedCollective gather_of(const PlannedUnit& unit, std::int64_t times = 1);
// The one that gathers the sums of its gradient.
PlannedCollective gradient_gather_of(const PlannedUnit& unit);
// The collectives that sum a unit's gradient, so many times; `groups` is the number of groups of ranks that have all
// shards.
std::vector<PlannedCollective> reductions_of(const PlannedUnit& unit, std::int64_t times, int groups);

// What a rank does with a unit.
struct StepEvent {
  // Collectives only begin: of a reduction the first, and later the others.
  enum class Kind : unsigned char { gather, forward, backward, reduce, continue_reduce, gather_gradient };
  Kind kind;
  std::size_t unit;
  std::int64_t micro_batch;
};

// Tells a UnitSchedule what a transformer does in a step after the first: all events before the update, and the peaks
// of the memory that is there for a while. `groups` is the number of groups of ranks that have all shards.
class PlannedStep {
 public:
  PlannedStep(const std::vector<PlannedUnit>& units, const ShardedOptions& options, int groups);

  const std::vector<StepEvent>& events() const { return events_; }
  void report(MemoryPlan& memory) const;
  // A unit of the module whose forward pass is the last.
  std::size_t last_unit() const { return order_.back().back(); }

 private:
  struct State {
    bool gradient = false;      // a whole one that comes and goes
    bool begun = false;         // it has a sum of an earlier pass
    bool more_is_due = false;   // collectives of its sum after the first
    bool holds_before = false;  // the residual from before this step is kept
    std::int64_t received = 0;  // bytes of its own for a reduction
  };
  struct Count {
    std::int64_t now = 0, peak = 0;
    void add(std::int64_t bytes);
  };

  void count(Count& kind, std::int64_t bytes);
  void forward();
  void backward(bool reduces, bool last);
  void compute_backward(const std::vector<std::size_t>& units);
  void perform(const UnitSchedule::Actions& actions);
  void hold_gradient(std::size_t unit, bool wanted);
  void begin_reduce(std::size_t unit);
  void continue_reduce(std::size_t unit);
  void finish_reduce(std::size_t unit);
  void receive(std::size_t unit, std::int64_t bytes);
  void note(StepEvent::Kind kind, std::size_t unit) { events_.push_back({kind, unit, micro_batch_}); }

  const std::vector<PlannedUnit>& units_;
  UnitSchedule schedule_;
  std::vector<std::vector<std::size_t>> order_;  // units of each module, in the order of the forward pass
  std::vector<State> states_;
  std::vector<StepEvent> events_ = {};
  std::int64_t micro_batch_ = 0;
  bool crosses_groups_;
  Count gathered_ = {}, gradients_ = {}, all_ = {};
};

}  // namespace keel
