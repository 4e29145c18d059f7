#include "keel/dist/parallel/file_plan.h"

#include <utility>

#include "keel/dist/parallel/state_slots.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/page_file.h"

namespace keel {
namespace {

constexpr WalkOf kWalks[] = {&WalkUses::update, &WalkUses::prepare};

// What a walk goes over among some units: those that are trained, or that are prepared before, with what it uses.
std::vector<UpdatedUnit> updated_units(const FilePlanSite& site, Span among, WalkOf walk) {
  const bool updates = walk == &WalkUses::update;
  std::vector<UpdatedUnit> units;
  for (auto i = static_cast<std::size_t>(among.begin); i < static_cast<std::size_t>(among.end); ++i) {
    const UnitSplit& unit = site.units[i];
    UnitPages pages = pages_of(i, site);
    const bool takes_gradient = pages.gradient.*walk != PageUse::none;
    if (!unit.trainable || (!updates && !takes_gradient)) continue;
    std::erase_if(pages.pages, [&](const PlannedPage& page) { return page.uses.*walk == PageUse::none; });
    UpdatedUnit& updated = units.emplace_back(UpdatedUnit{.pages = std::move(pages)});
    if (site.offloads && unit.gradients_paged() == 0 && takes_gradient)
      updated.gradient_width = width_of(unit.gradient);
    if (updates && !unit.shards_parameters) updated.shared = unit.gather_held();
  }
  return units;
}

}  // namespace

WalkedUnit UnitPages::walked(WalkOf walk) const {
  WalkedUnit unit{.elements = elements};
  for (const PlannedPage& page : pages)
    unit.add(page.uses.*walk, page.in_pieces, page.in_pieces ? page.width : page.bytes());
  return unit;
}

UnitPages pages_of(std::size_t number, const FilePlanSite& site) {
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

std::int64_t room_in_file(const FilePlanSite& site) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < site.units.size(); ++i)
    for (const PlannedPage& page : pages_of(i, site).pages) sum += page.in_file ? PageFile::room_of(page.bytes()) : 0;
  return sum;
}

std::int64_t piece_of_update(const FilePlanSite& site, std::int64_t budget) {
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

FilePlan plan_files(const FilePlanSite& site, std::int64_t budget, std::span<const Span> batches) {
  const std::int64_t piece = piece_of_update(site, budget);
  FilePlan plan{.room = room_in_file(site)};
  for (std::size_t i = 0; i < site.units.size(); ++i) {
    const UnitPages pages = pages_of(i, site);
    plan.gradient_reads.push_back(
        std::ranges::count_if(kWalks, [&](WalkOf walk) { return pages.gradient.*walk != PageUse::none; }));
    for (const PlannedPage& page : pages.pages)
      for (const WalkOf walk : kWalks) {
        const PageUse use = page.uses.*walk;
        const std::int64_t read = use == PageUse::none ? 0 : page.bytes(),
                           written = use == PageUse::updated ? page.bytes() : 0;
        if (page.on_device) plan.moved += read + written;
        if (page.in_file) plan.read += read;
        if (page.in_file) plan.written += written;
      }
  }
  for (const Span batch : batches) {
    TierPeaks& peaks = plan.walks.emplace_back();
    for (const WalkOf walk : kWalks)
      peaks = peaks | peaks_of_walk(walk, updated_units(site, batch, walk), piece, budget, site.on_device);
  }
  return plan;
}

}  // namespace keel
