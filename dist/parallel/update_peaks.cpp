// What an update has in memory at a time while it walks over files: where the model computes, and beside a device in
// the processor's memory.

#include "keel/dist/parallel/file_plan.h"
#include "keel/dist/parallel/tier_counts.h"

namespace keel {
namespace {

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

}  // namespace

TierPeaks peaks_of_walk(WalkOf of, std::span<const UpdatedUnit> units, std::int64_t piece, std::int64_t budget,
                        bool on_device) {
  std::vector<WalkedUnit> walked;
  for (const UpdatedUnit& unit : units) walked.push_back(unit.pages.walked(of));
  UpdateCounter counter(of, units, on_device);
  run_walk(walk_update(walked, piece, budget), counter);
  return counter.peaks();
}

}  // namespace keel
