#include "keel/dist/parallel/memory_peaks.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace keel {
namespace {

class PeakCounter {
 public:
  explicit PeakCounter(std::span<const UnitSplit> units) : units_(units), states_(units.size()) {}

  void add(const StepEvent& event) {
    if (event.kind == StepEvent::Kind::backward_begins) hold_gradient(event.unit, true);
    if (event.kind == StepEvent::Kind::action) perform(event.action, event.unit);
  }
  MemoryPeaks peaks() const { return {gathered_.peak, gradients_.peak, all_.peak}; }

 private:
  struct Count {
    std::int64_t now = 0, peak = 0;
    void add(std::int64_t bytes) { peak = std::max(peak, now += bytes); }
  };
  struct State {
    bool gradient = false;      // a whole one that comes and goes
    bool summed = false;        // there is a sum of an earlier pass
    int added = 0;              // virtual ranks whose gradients this rank has added
    bool holds_before = false;  // what compression kept before this step is kept, too
    bool gathered = false;      // in this step
    std::int64_t coded = 0;     // bytes of codes of a gather that is under way
    std::size_t stage = 0;      // of the reduction, to begin next
    std::int64_t held = 0;      // bytes of the stage that is under way
  };

  void perform(UnitAction::Kind kind, std::size_t unit) {
    using Kind = UnitAction::Kind;
    const UnitSplit& split = units_[unit];
    const std::int64_t whole = split.whole * static_cast<std::int64_t>(size_of(split.values));
    State& state = states_[unit];
    switch (kind) {
      case Kind::gather:
        if (split.secondary == 0 || (split.trainable && !state.gathered)) all_.add(state.coded = split.gather_held());
        state.gathered = true;  // from here on from the subgroup, as they are
        return count(gathered_, whole);
      case Kind::release: all_.add(-std::exchange(state.coded, 0)); return count(gathered_, -whole);
      case Kind::begin_reduce:
        ++state.added;
        if (!is_complete(unit)) return;
        if (!std::exchange(state.holds_before, true)) all_.add(split.reduction.state);
        return begin_stage(unit);
      case Kind::continue_reduce:
        if (is_complete(unit)) begin_stage(unit);
        return;
      case Kind::finish_reduce:
        if (!is_complete(unit)) return hold_gradient(unit, false);
        while (state.stage < split.reduction.stages.size()) begin_stage(unit);
        all_.add(-std::exchange(state.held, 0));
        state.stage = 0;
        state.summed = true;
        return hold_gradient(unit, false);
      case Kind::wait_gathered: return all_.add(-std::exchange(state.coded, 0));
      case Kind::gather_gradient:
      case Kind::wait_gradient: return;
    }
  }
  // Whether the rank has the sum of its virtual ranks, which goes to the others.
  bool is_complete(std::size_t unit) const { return states_[unit].added >= units_[unit].virtual_ranks; }
  void begin_stage(std::size_t unit) {
    State& state = states_[unit];
    const std::vector<ReductionStage>& stages = units_[unit].reduction.stages;
    if (state.stage == stages.size()) return;
    const ReductionStage& stage = stages[state.stage++];
    const std::int64_t bytes = state.summed ? stage.held_later : stage.held;
    all_.add(bytes - std::exchange(state.held, bytes));
  }
  void hold_gradient(std::size_t unit, bool wanted) {
    if (!units_[unit].shards_gradients || std::exchange(states_[unit].gradient, wanted) == wanted) return;
    count(gradients_, wanted ? units_[unit].gradient_bytes() : -units_[unit].gradient_bytes());
  }
  void count(Count& kind, std::int64_t bytes) {
    kind.add(bytes);
    all_.add(bytes);
  }

  std::span<const UnitSplit> units_;
  std::vector<State> states_;
  Count gathered_, gradients_, all_;
};

}  // namespace

MemoryPeaks memory_peaks(std::span<const UnitSplit> units, std::span<const StepEvent> events) {
  PeakCounter counter(units);
  for (const StepEvent& event : events) counter.add(event);
  return counter.peaks();
}

}  // namespace keel
