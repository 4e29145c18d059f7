#include "keel/dist/parallel/file_plan.h"

#include <algorithm>

#include "keel/dist/parallel/state_slots.h"
#include "keel/dist/parallel/update_peaks.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/page_file.h"

namespace keel {
namespace {

constexpr WalkOf kWalks[] = {&WalkUses::prepare, &WalkUses::update};

// Bytes of pages, counted in each walk whose use of them counts.
std::int64_t bytes_in_walks(std::span<const PlannedPage> pages, bool (*counts)(PageUse)) {
  std::int64_t sum = 0;
  for (const PlannedPage& page : pages)
    for (const WalkOf walk : kWalks) sum += page.in_file && counts(page.uses.*walk) ? page.bytes() : 0;
  return sum;
}

// What comes to the processor, and what all ranks get, beside the pages.
UpdatedUnit updated_unit(std::size_t number, WalkOf walk, const UnitPages& pages, const FilePlanSite& site) {
  const UnitSplit& unit = site.units[number];
  UpdatedUnit updated{.pages = pages};
  if (site.offloads && unit.gradients_paged() == 0 && pages.gradient.*walk != PageUse::none)
    updated.gradient_width = static_cast<std::int64_t>(size_of(unit.gradient));
  if (walk != &WalkUses::update) return updated;
  if (!unit.shards_parameters) updated.shared = unit.gather_held();
  return updated;
}

// What walks go over among some units: one over those that are trained, and one over those that are prepared before.
struct PlannedWalks {
  std::vector<WalkedUnit> prepare, update;
  std::vector<WalkedUnit> all;  // of both
  std::vector<UpdatedUnit> prepared, updated;
  std::vector<std::size_t> units = {};  // of all

  PlannedWalks(const FilePlanSite& site, Span among) {
    for (auto i = static_cast<std::size_t>(among.begin); i < static_cast<std::size_t>(among.end); ++i) {
      if (!site.units[i].trainable) continue;
      const UnitPages pages = pages_of(i, site);
      update.push_back(pages.walked(&WalkUses::update));
      updated.push_back(updated_unit(i, &WalkUses::update, pages, site));
      all.push_back(update.back());
      units.push_back(i);
      if (!pages.is_prepared) continue;
      prepare.push_back(pages.walked(&WalkUses::prepare));
      prepared.push_back(updated_unit(i, &WalkUses::prepare, pages, site));
      all.push_back(prepare.back());
      units.push_back(i);
    }
  }
};

}  // namespace

WalkedUnit UnitPages::walked(WalkOf walk) const {
  WalkedUnit unit{.elements = elements};
  for (const PlannedPage& page : pages)
    unit.add(page.uses.*walk, page.in_pieces, page.in_pieces ? page.width : page.bytes());
  return unit;
}

std::int64_t UnitPages::read() const {
  return bytes_in_walks(pages, [](PageUse use) { return use != PageUse::none; });
}

std::int64_t UnitPages::written() const {
  return bytes_in_walks(pages, [](PageUse use) { return use == PageUse::updated; });
}

std::int64_t UnitPages::room() const {
  std::int64_t sum = 0;
  for (const PlannedPage& page : pages) sum += page.in_file ? PageFile::room_of(page.bytes()) : 0;
  return sum;
}

UnitPages pages_of(std::size_t number, const FilePlanSite& site) {
  const UnitSplit& unit = site.units[number];
  const StateSlots slots(site.layout[number], unit, site.optimizer, site.groups);
  const std::int64_t owned = unit.owned.count();
  UnitPages planned{
      .pages = {}, .elements = owned, .is_prepared = slots.has_matrices(), .gradient = slots.gradient_uses()};
  const auto value = static_cast<std::int64_t>(size_of(unit.values)),
             gradient = static_cast<std::int64_t>(size_of(unit.gradient)),
             wide = std::int64_t{site.policy.parameter == DType::f64 ? 8 : 4};
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

std::int64_t room_in_file(const FilePlanSite& site) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < site.units.size(); ++i) sum += pages_of(i, site).room();
  return sum;
}

std::int64_t piece_of_update(const FilePlanSite& site, std::int64_t budget) {
  const PlannedWalks walks(site, {0, static_cast<std::int64_t>(site.units.size())});
  const std::int64_t piece = piece_of_walk(walks.all, budget);
  for (std::size_t i = 0; i < walks.all.size(); ++i)
    KEEL_CHECK(walks.all[i].least(piece) <= budget, "sharding.offload_budget is ",
               binary_size(static_cast<double>(budget)), ", and an update has ",
               binary_size(static_cast<double>(walks.all[i].least(piece))), " of ",
               name_of_unit(site.layout[walks.units[i]]), " in memory at a time of what lies in files");
  return piece;
}

FilePlan plan_files(const FilePlanSite& site, std::int64_t budget, std::span<const Span> batches) {
  const std::int64_t piece = piece_of_update(site, budget);
  FilePlan plan{.room = room_in_file(site)};
  for (std::size_t i = 0; i < site.units.size(); ++i) {
    const UnitSplit& unit = site.units[i];
    const UnitPages pages = pages_of(i, site);
    plan.gradient_reads.push_back(
        std::ranges::count_if(kWalks, [&](WalkOf walk) { return pages.gradient.*walk != PageUse::none; }));
    if (!unit.trainable) continue;
    plan.read += pages.read();
    plan.written += pages.written();
    for (const PlannedPage& page : pages.pages)
      for (const WalkOf walk : kWalks)
        if (page.on_device && page.uses.*walk != PageUse::none)
          plan.moved += page.bytes() * (page.uses.*walk == PageUse::updated ? 2 : 1);
  }
  for (const Span batch : batches) {
    const PlannedWalks walks(site, batch);
    const UpdateWalk prepare = walk_update(walks.prepare, piece, budget),
                     update = walk_update(walks.update, piece, budget);
    plan.walks.push_back(peaks_of_walk(prepare, &WalkUses::prepare, walks.prepared, site.on_device) |
                         peaks_of_walk(update, &WalkUses::update, walks.updated, site.on_device));
  }
  return plan;
}

}  // namespace keel
