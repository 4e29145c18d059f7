#include "keel/dist/parallel/state_slots.h"

#include <algorithm>

namespace keel {

WalkUses StateSlot::uses() const {
  return of_matrices ? WalkUses{.prepare = PageUse::updated} : WalkUses{.update = PageUse::updated};
}

StateSlots::StateSlots(const FlatBuffer& layout, const UnitSplit& split, const Optimizer& optimizer,
                       const GroupRule& groups)
    : places_(layout.segments.size()) {
  if (!split.trainable) return;
  const bool takes_pieces = optimizer.requirements().takes_pieces(), takes_matrices = optimizer.requirements().matrices;
  std::vector<Span> mine;  // by segment, among the elements that this rank updates
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment& segment = layout.segments[i];
    const Span own = overlap(span_of(segment), split.owned);
    mine.push_back({own.begin - split.owned.begin, own.end - split.owned.begin});
    const ParameterGroup group = group_of(groups, segment);
    const std::vector<StateKind> kinds = optimizer.parameter_state(segment.shape, group);
    places_[i].resize(kinds.size());
    if (own.count() == 0) continue;
    const bool is_matrix = takes_matrices && !optimizer.matrices(segment.shape, group).empty();
    (is_matrix ? has_matrices_ : has_others_) = true;
    std::size_t number = 0;
    for (std::size_t kind = 0; kind < kinds.size() && split.files_state; ++kind) {
      if (!kinds[kind].by_element()) continue;
      StateSlot& slot = slot_of(kinds[kind], is_matrix, number++);
      places_[i][kind] = Place{static_cast<std::size_t>(&slot - slots_.data()), slot.elements};
      slot.elements += mine.back().count();
    }
  }
  for (StateSlot& slot : slots_) {
    slot.in_place = takes_pieces && 2 * slot.elements >= split.owned.count();
    if (slot.in_place) slot.elements = split.owned.count();
  }
  for (std::size_t i = 0; i < places_.size(); ++i)
    for (std::optional<Place>& place : places_[i])
      if (place && slots_[place->slot].in_place) place->begin = mine[i].begin;
}

StateSlot& StateSlots::slot_of(const StateKind& kind, bool of_matrices, std::size_t number) {
  const auto found = std::ranges::find_if(slots_, [&](const StateSlot& slot) {
    return slot.of_matrices == of_matrices && slot.codes == kind.codes && slot.number == number;
  });
  if (found != slots_.end()) return *found;
  return slots_.emplace_back(
      StateSlot{.name = kind.name, .of_matrices = of_matrices, .codes = kind.codes, .number = number});
}

WalkUses StateSlots::uses(PageUse use) const {
  return {.prepare = has_matrices_ ? use : PageUse::none,
          .update = has_others_ || !has_matrices_ ? use : PageUse::none};
}

}  // namespace keel
