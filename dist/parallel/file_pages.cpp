#include "keel/dist/parallel/file_pages.h"

#include "keel/dist/parallel/state_slots.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/page_file.h"

namespace keel {

WalkedUnit UnitPages::walked(WalkOf walk) const {
  WalkedUnit unit{.elements = elements};
  for (const PlannedPage& page : pages)
    unit.add(page.uses.*walk, page.in_pieces, page.in_pieces ? page.width : page.bytes());
  return unit;
}

UnitPages pages_of(std::size_t number, const FileSite& site) {
  const UnitSplit& unit = site.units[number];
  const StateSlots slots(site.layout[number], unit, site.optimizer, site.groups);
  const std::int64_t owned = unit.owned.count();
  UnitPages planned{.pages = {}, .elements = owned, .gradient = slots.gradient_uses()};
  const std::int64_t value = width_of(unit.values), gradient = width_of(unit.gradient),
                     wide = width_of(site.policy.master_dtype());
  const bool takes_pieces = site.optimizer.requirements().takes_pieces();
  const auto add = [&](WalkUses uses, std::int64_t elements, std::int64_t width, bool on_device = false,
                       bool in_file = true) {
    const bool in_pieces = takes_pieces && in_file && !on_device && elements == owned;
    planned.pages.push_back({uses, elements, width, in_pieces, in_file, on_device});
  };
  if (unit.pages_values)
    add(unit.trainable ? kWeightUses : WalkUses{}, unit.keeps_own() ? owned : unit.whole, value,
        site.on_device || !unit.files_values, unit.files_values);
  if (unit.files_state) {
    if (site.policy.master()) add(kWeightUses, owned, wide);
    if (site.on_device) add(kWeightUses, owned, value);
    for (std::size_t kind = 0; kind < site.optimizer.state_names().size(); ++kind) add(slots.state_uses(), owned, wide);
    for (const StateSlot& slot : slots.all())
      planned.pages.push_back({slot.uses(), slot.elements, slot.codes ? 1 : wide, slot.in_place});
  }
  const WalkUses uses = unit.files_gradients || !site.offloads ? planned.gradient : WalkUses{};
  const bool on_device = !site.offloads && (site.on_device || !unit.files_gradients);
  if (unit.pages_sums) add(uses, unit.shard.count(), gradient, on_device, unit.files_gradients);
  if (unit.pages_gradient)
    add(unit.pages_sums ? WalkUses{} : uses, unit.whole, gradient, on_device, unit.files_gradients);
  return planned;
}

std::int64_t room_in_file(const FileSite& site) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < site.units.size(); ++i)
    for (const PlannedPage& page : pages_of(i, site).pages) sum += page.in_file ? PageFile::room_of(page.bytes()) : 0;
  return sum;
}

std::int64_t piece_of_update(const FileSite& site, std::int64_t budget) {
  std::vector<WalkedUnit> walked;  // each by each walk, which finds nothing in what it does not go over
  for (std::size_t i = 0; i < site.units.size(); ++i)
    for (const WalkOf walk : kWalks) walked.push_back(pages_of(i, site).walked(walk));
  const std::int64_t piece = piece_of_walk(walked, budget);
  for (std::size_t i = 0; i < walked.size(); ++i)
    KEEL_CHECK(walked[i].least(piece) <= budget, "sharding.offload_budget is ",
               binary_size(static_cast<double>(budget)), ", and an update has ",
               binary_size(static_cast<double>(walked[i].least(piece))), " of ",
               name_of_unit(site.layout[i / std::size(kWalks)]), " in memory at a time of what lies in files");
  return piece;
}

}  // namespace keel
