#include "keel/dist/plan/update_peaks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "keel/dist/plan/tier_counts.h"

namespace keel {
namespace {

// A unit that a walk goes over: the pages that it uses, and what moves besides.
struct UpdatedUnit {
  UnitPages pages;
  std::int64_t gradient_width = 0;  // bytes of an element that comes to the processor from where it lies on the device
  std::int64_t shared = 0;          // bytes of buffers in which updated weights travel
};

// What a walk goes over among some units: those that are trained, or that are prepared before, with what it uses.
std::vector<UpdatedUnit> updated_units(const FileSite& site, Span among, WalkOf walk) {
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

// Counts what OptimizerMemory::WalkOverFiles does, in its order.
class UpdateCounter {
 public:
  UpdateCounter(WalkOf of, std::span<const UpdatedUnit> units, bool on_device)
      : of_(of), units_(units), memory_(on_device) {}

  void fetch(const WalkStep& step) {
    for (const PlannedPage& page : pages(step)) {
      if (page.in_pieces) memory_.add_on_host(piece_bytes(step, page));
      else if (step.is_first()) page.on_device ? memory_.fetch(bytes_of(page)) : memory_.add_on_host(page.bytes());
    }
    memory_.add_on_host(step.piece.count() * unit(step).gradient_width);
  }
  void update(const WalkStep& step) {
    for (const PlannedPage& page : pages(step))
      if (step.is_first() && page.on_device) memory_.wait(bytes_of(page));
    memory_.add_on_host(-step.piece.count() * unit(step).gradient_width);
    if (step.is_last) {  // these come and go
      memory_.here.add(unit(step).shared);
      memory_.here.add(-unit(step).shared);
    }
    // What is not written goes first.
    for (const PlannedPage& page : pages(step))
      if (page.uses.*of_ == PageUse::read) leave(step, page);
    for (const PlannedPage& page : pages(step))
      if (is_written(page) && !page.in_pieces && page.on_device && step.is_last) memory_.store(bytes_of(page));
  }
  void settle(const WalkStep& step) {
    for (const PlannedPage& page : pages(step)) {
      if (!is_written(page)) continue;
      if (page.in_pieces || !page.on_device) leave(step, page);
      else if (step.is_last) memory_.settle(bytes_of(page));
    }
  }
  TierPeaks peaks() const { return {memory_.here.peak, memory_.host_peak()}; }

 private:
  // A piece goes, or with the last one of its unit a whole page.
  void leave(const WalkStep& step, const PlannedPage& page) {
    if (page.in_pieces) memory_.add_on_host(-piece_bytes(step, page));
    else if (step.is_last) page.on_device ? memory_.drop(bytes_of(page)) : memory_.add_on_host(-page.bytes());
  }

  const UpdatedUnit& unit(const WalkStep& step) const { return units_[step.unit]; }
  const std::vector<PlannedPage>& pages(const WalkStep& step) const { return unit(step).pages.pages; }
  bool is_written(const PlannedPage& page) const { return page.uses.*of_ == PageUse::updated; }
  static std::int64_t piece_bytes(const WalkStep& step, const PlannedPage& page) {
    return step.piece.count() * page.width;
  }
  static TierCounts::PlannedBytes bytes_of(const PlannedPage& page) { return {page.bytes(), page.in_file}; }

  WalkOf of_;
  std::span<const UpdatedUnit> units_;
  TierCounts memory_;
};

// What a walk has in memory at a time, with pieces of so many elements, within a budget of bytes.
TierPeaks peaks_of_walk(WalkOf of, std::span<const UpdatedUnit> units, std::int64_t piece, std::int64_t budget,
                        bool on_device) {
  std::vector<WalkedUnit> walked;
  for (const UpdatedUnit& unit : units) walked.push_back(unit.pages.walked(of));
  UpdateCounter counter(of, units, on_device);
  run_walk(walk_update(walked, piece, budget), counter);
  return counter.peaks();
}

}  // namespace

FilePlan plan_files(const FileSite& site, std::int64_t budget, std::span<const Span> batches) {
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
