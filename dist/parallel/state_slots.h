#pragma once
// What an update uses of the parameters of one unit, and how their states lie in a file.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/matrix_deal.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/dist/parallel/update_walk.h"
#include "keel/optim/optimizer.h"

namespace keel {

// A state of several parameters that lies in one page. Those of matrices are apart, since another walk uses them.
struct StateSlot {
  std::string_view name;  // of the first parameter's
  bool of_matrices, codes;
  std::size_t number;  // among the states of a parameter that have slots
  // Where the parameters are half of what the rank updates, or more, a number lies in the place of its element, so that
  // an update has a piece of them at a time. Otherwise they lie one behind the other, and come whole.
  bool in_place = false;
  std::int64_t elements = 0;

  WalkUses uses() const;
};

// Of what this rank updates of a unit. Of the optimizer's parameter_state(), what has a number for each element has a
// place in a slot where states lie in files. Factors and the scales of blocks, which are few, stay in memory.
class StateSlots {
 public:
  StateSlots(const FlatBuffer& layout, const UnitSplit& split, const Optimizer& optimizer, const GroupRule& groups);

  const std::vector<StateSlot>& all() const { return slots_; }
  // Where state `kind` of a parameter begins; none: it has no place in a slot.
  struct Place {
    std::size_t slot;
    std::int64_t begin;
  };
  std::optional<Place> place(std::size_t segment, std::size_t kind) const { return places_[segment][kind]; }

  // Of the gradient, and of the states that all elements have. Weights and masters are updated.
  WalkUses gradient_uses() const { return uses(PageUse::read); }
  WalkUses state_uses() const { return uses(PageUse::updated); }

 private:
  WalkUses uses(PageUse use) const;
  StateSlot& slot_of(const StateKind& kind, bool of_matrices, std::size_t number);

  std::vector<StateSlot> slots_;
  std::vector<std::vector<std::optional<Place>>> places_;  // by segment and kind of state
  bool has_matrices_ = false, has_others_ = false;
};

// Of weights and masters.
inline constexpr WalkUses kWeightUses = {.prepare = PageUse::none, .update = PageUse::updated};

}  // namespace keel
