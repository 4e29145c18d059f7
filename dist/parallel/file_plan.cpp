#include "keel/dist/parallel/file_plan.h"

#include <algorithm>

#include "keel/runtime/memory_limit.h"
#include "keel/runtime/page_file.h"

namespace keel {

WalkedUnit UnitPages::walked() const {
  WalkedUnit unit{.elements = elements, .whole_read = hosted, .whole_written = hosted};
  for (const PlannedPage& page : pages) {
    const std::int64_t count = page.in_pieces ? page.width : page.bytes();
    if (page.use != PlannedPage::Use::none) (page.in_pieces ? unit.read : unit.whole_read) += count;
    if (page.use == PlannedPage::Use::updated) (page.in_pieces ? unit.written : unit.whole_written) += count;
  }
  return unit;
}

std::int64_t UnitPages::read() const {
  std::int64_t sum = 0;
  for (const PlannedPage& page : pages) sum += page.use == PlannedPage::Use::none ? 0 : page.bytes();
  return sum;
}

std::int64_t UnitPages::written() const {
  std::int64_t sum = 0;
  for (const PlannedPage& page : pages) sum += page.use == PlannedPage::Use::updated ? page.bytes() : 0;
  return sum;
}

std::int64_t UnitPages::room() const {
  std::int64_t sum = 0;
  for (const PlannedPage& page : pages) sum += PageFile::room_of(page.bytes());
  return sum;
}

UnitPages pages_of(const UnitSplit& unit, const FilePlanSite& site) {
  const std::int64_t owned = unit.owned.count();
  UnitPages planned{.pages = {}, .elements = owned};
  const auto value = static_cast<std::int64_t>(size_of(unit.values)),
             gradient = static_cast<std::int64_t>(size_of(unit.gradient)),
             wide = std::int64_t{site.policy.parameter == DType::f64 ? 8 : 4};
  const bool one_by_one = site.optimizer.requirements().one_by_one;
  const auto add = [&](PlannedPage::Use use, std::int64_t elements, std::int64_t width, bool is_of_device = false) {
    const bool in_pieces = use != PlannedPage::Use::none && !one_by_one && !is_of_device && elements == owned;
    planned.pages.push_back({use, elements, width, in_pieces});
  };
  const std::int64_t values = unit.keeps_own() ? owned : unit.whole;
  if (unit.pages_values && !unit.files_values) planned.hosted = unit.trainable ? values * value : 0;
  if (unit.files_values)
    add(unit.trainable ? PlannedPage::Use::updated : PlannedPage::Use::none, values, value, site.on_device);
  if (unit.files_state) {
    if (site.policy.master()) add(PlannedPage::Use::updated, owned, wide);
    if (site.on_device) add(PlannedPage::Use::updated, owned, value);
    for (std::size_t kind = 0; kind < site.optimizer.state_names().size(); ++kind)
      add(PlannedPage::Use::updated, owned, wide);
  }
  if (unit.files_sums) add(PlannedPage::Use::read, unit.shard.count(), gradient);
  if (unit.files_gradient) add(unit.files_sums ? PlannedPage::Use::none : PlannedPage::Use::read, unit.whole, gradient);
  return planned;
}

std::int64_t room_in_file(const FilePlanSite& site) {
  std::int64_t sum = 0;
  for (const UnitSplit& unit : site.units) sum += pages_of(unit, site).room();
  return sum;
}

std::int64_t piece_of_update(const FilePlanSite& site, std::int64_t budget) {
  std::vector<WalkedUnit> walked;
  for (const UnitSplit& unit : site.units)
    walked.push_back(unit.trainable ? pages_of(unit, site).walked() : WalkedUnit{});
  const std::int64_t piece = piece_of_walk(walked, budget);
  for (std::size_t i = 0; i < walked.size(); ++i)
    KEEL_CHECK(walked[i].least(piece) <= budget, "sharding.offload_budget is ",
               binary_size(static_cast<double>(budget)), ", and an update has ",
               binary_size(static_cast<double>(walked[i].least(piece))), " of ", name_of_unit(site.layout[i]),
               " in memory at a time of what lies in files");
  return piece;
}

FilePlan plan_files(const FilePlanSite& site, std::int64_t budget) {
  const std::int64_t piece = piece_of_update(site, budget);
  FilePlan plan{.room = room_in_file(site)};
  std::vector<WalkedUnit> walked;
  for (const UnitSplit& unit : site.units) {
    const UnitPages pages = pages_of(unit, site);
    const WalkedUnit own = pages.walked();
    plan.at_a_time.push_back(own.read > 0 ? std::min(piece, own.elements) : own.elements);
    if (!unit.trainable) continue;
    walked.push_back(own);
    plan.read += pages.read();
    plan.written += pages.written();
    if (!unit.pages_values || (!site.on_device && pages.hosted == 0)) continue;
    const std::int64_t values = unit.keeps_own() ? unit.owned.count() : unit.whole;
    plan.moved += 2 * values * static_cast<std::int64_t>(size_of(unit.values));
  }
  plan.walk = walk_update(walked, piece, budget).peak;
  return plan;
}

}  // namespace keel
