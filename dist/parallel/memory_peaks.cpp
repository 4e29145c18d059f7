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
    if (event.kind == StepEvent::Kind::forward) settle();
    if (event.kind == StepEvent::Kind::backward_begins) hold_gradient(event.unit, true);
    if (event.kind == StepEvent::Kind::action) perform(event.action, event.unit);
  }
  MemoryPeaks peaks() const {
    return {gathered_.peak, gradients_.peak, all_.peak, values_read_, gradients_read_, gradients_written_};
  }

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
    bool whole = false;         // its parameters
    std::int64_t own = 0;       // bytes of its part of them that were read from a file
    bool stored = false;        // the whole gradient of passes before lies in a file
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
      case Kind::fetch: return read_own(unit);
      case Kind::gather:
        state.whole = true;
        if (split.pages_values && split.shards_parameters) read_own(unit);
        else if (split.pages_values) values_read_ += whole;
        if (split.secondary == 0 || (split.trainable && !state.gathered)) all_.add(state.coded = split.gather_held());
        state.gathered = true;  // from here on from the subgroup, as they are
        return count(gathered_, whole);
      case Kind::release:
        all_.add(-std::exchange(state.coded, 0) - std::exchange(state.own, 0));
        return std::exchange(state.whole, false) ? count(gathered_, -whole) : void();
      case Kind::store_gradient: state.stored = true; return leave(unit, split.gradient_bytes());
      case Kind::begin_reduce:
        ++state.added;
        if (!is_complete(unit)) return;
        if (!std::exchange(state.holds_before, true)) all_.add(split.reduction.state);
        hold_gradient(unit, true);
        if (split.pages_sums) all_.add(sums_bytes(split));
        if (split.pages_sums && state.summed) gradients_read_ += sums_bytes(split);
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
        if (split.pages_gradient && !split.pages_sums) return leave(unit, split.gradient_bytes());
        hold_gradient(unit, false);
        state.stored = false;
        return split.pages_sums ? leave(unit, sums_bytes(split)) : void();
      case Kind::wait_gathered: return all_.add(-std::exchange(state.coded, 0) - std::exchange(state.own, 0));
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
    const UnitSplit& split = units_[unit];
    if (!split.shards_gradients && !split.pages_gradient) return;
    if (std::exchange(states_[unit].gradient, wanted) == wanted) return;
    if (wanted && states_[unit].stored) gradients_read_ += split.gradient_bytes();
    count(gradients_, wanted ? units_[unit].gradient_bytes() : -units_[unit].gradient_bytes());
  }
  // What a gather sends of this rank's, from its file.
  void read_own(std::size_t unit) {
    if (states_[unit].own > 0) return;
    const UnitSplit& split = units_[unit];
    const std::int64_t bytes = split.shard.count() * static_cast<std::int64_t>(size_of(split.values));
    values_read_ += bytes;
    all_.add(states_[unit].own = bytes);
  }
  static std::int64_t sums_bytes(const UnitSplit& split) {
    return split.shard.count() * static_cast<std::int64_t>(size_of(split.gradient));
  }
  // So much of a gradient goes to its file, when that before it is there.
  void leave(std::size_t unit, std::int64_t bytes) {
    settle();
    gradients_written_ += bytes;
    leaving_ = {unit, bytes};
  }
  void settle() {
    const auto [unit, bytes] = std::exchange(leaving_, {});
    if (bytes == 0) return;
    if (units_[unit].pages_sums && !states_[unit].gradient) all_.add(-bytes);
    else hold_gradient(unit, false);
  }
  void count(Count& kind, std::int64_t bytes) {
    kind.add(bytes);
    all_.add(bytes);
  }

  std::span<const UnitSplit> units_;
  std::vector<State> states_;
  Count gathered_, gradients_, all_;
  std::pair<std::size_t, std::int64_t> leaving_ = {};  // a unit, and its bytes that are being written
  std::int64_t values_read_ = 0, gradients_read_ = 0, gradients_written_ = 0;
};

}  // namespace

MemoryPeaks memory_peaks(std::span<const UnitSplit> units, std::span<const StepEvent> events) {
  PeakCounter counter(units);
  for (const StepEvent& event : events) counter.add(event);
  return counter.peaks();
}

}  // namespace keel
