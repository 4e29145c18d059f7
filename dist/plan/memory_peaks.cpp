#include "keel/dist/plan/memory_peaks.h"

#include <optional>
#include <utility>
#include <vector>

#include "keel/dist/plan/tier_counts.h"

namespace keel {
namespace {

class PeakCounter {
 public:
  PeakCounter(std::span<const UnitSplit> units, bool on_device)
      : units_(units), states_(units.size()), memory_(on_device) {}

  void add(const StepEvent& event) {
    if (event.kind == StepEvent::Kind::forward) settle();
    if (event.kind == StepEvent::Kind::backward_begins) hold_gradient(event.unit);
    if (event.kind == StepEvent::Kind::action) perform(event.action, event.unit);
  }
  MemoryPeaks peaks() const {
    return {.gathered = gathered_.peak,
            .whole_gradients = gradients_.peak,
            .all = memory_.here.peak,
            .host = memory_.host_peak(),
            .values_read = values_read_,
            .gradients_read = gradients_read_,
            .gradients_written = gradients_written_};
  }

 private:
  using PlannedBytes = TierCounts::PlannedBytes;
  enum class Place : unsigned char { away, arriving, here };
  struct State {
    bool gradient = false;      // a whole one that comes and goes
    bool summed = false;        // there is a sum of an earlier pass
    int added = 0;              // virtual ranks whose gradients this rank has added
    bool holds_before = false;  // what compression kept before this step is kept, too
    bool gathered = false;      // in this step
    bool whole = false;         // its parameters, of shards
    Place page = Place::away;   // of its parameters
    bool stored = false;        // the whole gradient of passes before lies in a file
    std::int64_t coded = 0;     // bytes of codes of a gather that is under way
    std::size_t stage = 0;      // of the reduction, to begin next
    std::int64_t held = 0;      // bytes of the stage that is under way
  };

  void perform(UnitAction::Kind kind, std::size_t unit) {
    using Kind = UnitAction::Kind;
    const UnitSplit& split = units_[unit];
    State& state = states_[unit];
    switch (kind) {
      case Kind::fetch: return fetch(unit);
      case Kind::gather: return gather(unit);
      case Kind::wait_gathered: return wait_gathered(unit);
      case Kind::release: return release(unit);
      case Kind::store_gradient: return store_whole(unit);
      case Kind::begin_reduce:
        ++state.added;
        if (!is_complete(unit)) return;
        if (!std::exchange(state.holds_before, true)) memory_.here.add(split.reduction.state);
        hold_gradient(unit);
        if (split.pages_sums) begin_sum(unit);
        return begin_stage(unit);
      case Kind::continue_reduce:
        if (is_complete(unit)) begin_stage(unit);
        return;
      case Kind::finish_reduce: return is_complete(unit) ? finish_reduce(unit) : drop_gradient(unit);
      case Kind::gather_gradient:
      case Kind::wait_gradient: return;
    }
  }

  // What a gather sends of this rank's, or all weights of the unit, from where they lie.
  void fetch(std::size_t unit) {
    if (states_[unit].page != Place::away) return;
    const PlannedBytes page = values_page(unit);
    memory_.fetch(page);
    values_read_ += page.bytes;
    states_[unit].page = Place::arriving;
  }
  void wait_for_page(std::size_t unit) {
    fetch(unit);
    if (std::exchange(states_[unit].page, Place::here) == Place::here) return;
    memory_.wait(values_page(unit));
    if (!units_[unit].shards_parameters) gathered_.add(whole_values(unit));
  }
  // What was read ahead comes, also where nobody has used it.
  void drop_page(std::size_t unit) {
    if (states_[unit].page == Place::away) return;
    wait_for_page(unit);
    memory_.drop(values_page(unit));
    states_[unit].page = Place::away;
    if (!units_[unit].shards_parameters) gathered_.add(-whole_values(unit));
  }
  void gather(std::size_t unit) {
    const UnitSplit& split = units_[unit];
    State& state = states_[unit];
    if (split.pages_values && !split.shards_parameters) return fetch(unit);
    state.whole = true;
    gathered_.add(whole_values(unit));
    memory_.here.add(whole_values(unit));
    if (split.pages_values) wait_for_page(unit);
    if (split.secondary == 0 || (split.trainable && !state.gathered))
      memory_.here.add(state.coded = split.gather_held());
    state.gathered = true;  // from here on from the subgroup, as they are
  }
  void wait_gathered(std::size_t unit) {
    const UnitSplit& split = units_[unit];
    if (split.pages_values && !split.shards_parameters) return wait_for_page(unit);
    memory_.here.add(-std::exchange(states_[unit].coded, 0));
    if (states_[unit].whole) drop_page(unit);
  }
  void release(std::size_t unit) {
    if (states_[unit].whole) wait_gathered(unit);
    if (units_[unit].pages_values) drop_page(unit);
    if (!std::exchange(states_[unit].whole, false)) return;
    gathered_.add(-whole_values(unit));
    memory_.here.add(-whole_values(unit));
  }

  // Whether the rank has the sum of its virtual ranks, which goes to the others.
  bool is_complete(std::size_t unit) const { return states_[unit].added >= units_[unit].virtual_ranks; }
  void begin_stage(std::size_t unit) {
    State& state = states_[unit];
    const std::vector<ReductionStage>& stages = units_[unit].reduction.stages;
    if (state.stage == stages.size()) return;
    const ReductionStage& stage = stages[state.stage++];
    const std::int64_t bytes = state.summed ? stage.held_later : stage.held;
    memory_.here.add(bytes - std::exchange(state.held, bytes));
  }
  void begin_sum(std::size_t unit) {
    const PlannedBytes page = sums_page(unit);
    if (!states_[unit].summed) return memory_.make(page);
    memory_.fetch(page);
    gradients_read_ += page.bytes;
  }
  void finish_reduce(std::size_t unit) {
    const UnitSplit& split = units_[unit];
    State& state = states_[unit];
    while (state.stage < split.reduction.stages.size()) begin_stage(unit);
    const bool adds = split.pages_sums && std::exchange(state.summed, true);
    state.summed = true;
    // Sums that a collective has written are there until they were added to those before; codes are not.
    const bool keeps_sums = !split.reduction.stages.empty() && split.reduction.stages.back().sends_sums();
    if (!keeps_sums) memory_.here.add(-std::exchange(state.held, 0));
    if (adds) memory_.wait(sums_page(unit));
    memory_.here.add(-std::exchange(state.held, 0));
    state.stage = 0;
    if (split.pages_gradient && !split.pages_sums) return leave({gradient_page(unit), unit});
    drop_gradient(unit);
    state.stored = false;
    if (split.pages_sums) leave({sums_page(unit), {}});
  }

  bool comes_and_goes(std::size_t unit) const { return units_[unit].shards_gradients || units_[unit].pages_gradient; }
  void hold_gradient(std::size_t unit) {
    State& state = states_[unit];
    if (!comes_and_goes(unit) || std::exchange(state.gradient, true)) return;
    const PlannedBytes page = gradient_page(unit);
    gradients_.add(page.bytes);
    if (!state.stored) return memory_.make(page);
    gradients_read_ += page.bytes;
    memory_.fetch(page);
    memory_.wait(page);
  }
  void drop_gradient(std::size_t unit) {
    if (!std::exchange(states_[unit].gradient, false)) return;
    gradients_.add(-gradient_page(unit).bytes);
    memory_.drop(gradient_page(unit));
  }
  void store_whole(std::size_t unit) {
    states_[unit].stored = true;
    leave({gradient_page(unit), unit});
  }

  // A page of a gradient that goes to where it lies, and then that before it has gone.
  struct Leaving {
    PlannedBytes page;
    std::optional<std::size_t> whole_of;  // the unit, where it is the whole gradient
  };
  void leave(const Leaving& next) {
    gradients_written_ += next.page.bytes;
    memory_.store(next.page);
    settle();
    leaving_ = next;
  }
  void settle() {
    if (!leaving_) return;
    const Leaving last = *std::exchange(leaving_, std::nullopt);
    memory_.settle(last.page);
    if (!last.whole_of) return;
    states_[*last.whole_of].gradient = false;
    gradients_.add(-last.page.bytes);
  }

  PlannedBytes values_page(std::size_t unit) const {
    const UnitSplit& split = units_[unit];
    return {split.shards_parameters ? split.shard.count() * width_of(split.values) : whole_values(unit),
            split.files_values};
  }
  PlannedBytes gradient_page(std::size_t unit) const {
    return {units_[unit].gradient_bytes(), units_[unit].files_gradients};
  }
  PlannedBytes sums_page(std::size_t unit) const {
    const UnitSplit& split = units_[unit];
    return {split.shard.count() * width_of(split.gradient), split.files_gradients};
  }
  std::int64_t whole_values(std::size_t unit) const { return units_[unit].whole * width_of(units_[unit].values); }

  std::span<const UnitSplit> units_;
  std::vector<State> states_;
  TierCounts memory_;
  PeakCount gathered_, gradients_;
  std::optional<Leaving> leaving_;
  std::int64_t values_read_ = 0, gradients_read_ = 0, gradients_written_ = 0;
};

}  // namespace

MemoryPeaks memory_peaks(std::span<const UnitSplit> units, std::span<const StepEvent> events, bool on_device) {
  PeakCounter counter(units, on_device);
  for (const StepEvent& event : events) counter.add(event);
  return counter.peaks();
}

}  // namespace keel
