#pragma once
// What one rank has of a unit: follows from the unit's layout and the options alone. The engine (shard_unit.h) makes
// its memory by it, and plans (plan.h) count it.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/reduction.h"
#include "keel/dist/parallel/sharded_options.h"
#include "keel/dist/parallel/unit_schedule.h"

namespace keel {

// Counts are elements.
struct UnitSplit {
  bool trainable = true;
  bool by_rows = false;  // its gradient is kept as rows
  bool shards_parameters = false, shards_gradients = false;
  int ranks = 1;                        // that its shards are spread over
  WeightCode code = WeightCode::exact;  // of the weights that are computed with
  int secondary = 0;                    // ranks of a subgroup, which has shards of its own; 0: there are none
  int virtual_ranks = 1;                // whose gradients this rank adds before it sends them
  bool is_pairwise = false;             // sums are taken along the tree of the virtual ranks
  // What leaves the memory where it is computed with between its uses: the weights that this rank keeps, the whole
  // gradient, and the sums over ranks of this rank's shard, where they lie apart.
  bool pages_values = false, pages_gradient = false, pages_sums = false;
  // Which of these lie in files then, and not in the processor's memory; and masters and state, if they do.
  bool files_values = false, files_gradients = false, files_state = false;
  bool adds_sums = false;  // sums over ranks of several passes, in a shard apart from the rank's own gradient
  std::int64_t whole = 0;  // with padding
  Span shard = {};         // of this rank
  Span owned = {};         // what this rank updates: its shard, or everything (stage 0)
  DType values = DType::f32, gradient = DType::f32;
  DType wire = DType::f32;  // in which gradients travel
  ReductionPlan reduction = {};

  // Whether this rank's own weights lie apart from those that are computed with.
  bool keeps_own() const { return shards_parameters || code != WeightCode::exact; }
  bool owns_all() const { return owned.count() == whole; }
  // Whether the whole weights are there only while somebody uses them.
  bool values_come_and_go() const { return shards_parameters || pages_values; }
  // Whether a reduction gives this rank the sums of the whole unit, not those of its shard alone.
  bool sums_whole() const { return !adds_sums && owns_all(); }
  // Whether its parameters are sent to the other ranks once they are updated.
  bool shares_updates() const { return trainable && !shards_parameters && !owns_all(); }
  // Bytes of the buffers of a gather.
  std::int64_t gather_held() const;
  // Whether the sums are gathered once they are all there.
  bool gathers_sums() const { return trainable && !by_rows && adds_sums && owned != shard; }
  // Elements of gradients that are kept from pass to pass.
  std::int64_t gradients_kept() const {
    return (shards_gradients || pages_gradient ? 0 : whole) +
           ((shards_gradients || adds_sums) && !pages_sums ? shard.count() : 0);
  }
  // Elements of the partial sums over virtual ranks, in the wire dtype (keel/dist/parallel/partial_sums.h).
  std::int64_t partial_sums() const {
    return std::bit_width(static_cast<unsigned>(virtual_ranks) - 1) * (trainable && !by_rows ? whole : 0);
  }
  // Elements of gradients that lie elsewhere between passes and until the update.
  std::int64_t gradients_paged() const { return (pages_gradient ? whole : 0) + (pages_sums ? shard.count() : 0); }
  // Of the whole gradient; 0 where there is no such memory.
  std::int64_t gradient_bytes() const { return trainable && !by_rows ? whole * width_of(gradient) : 0; }
};

// What two spans have in common; an empty one inside of `b` where that is nothing.
inline Span overlap(Span a, Span b) { return {std::clamp(a.begin, b.begin, b.end), std::clamp(a.end, b.begin, b.end)}; }
// The elements of a parameter among those of its unit.
inline Span span_of(const Segment& segment) { return {segment.offset, segment.offset + segment.numel}; }

UnitSplit split_unit(const FlatBuffer& layout, const ShardedOptions& options, const RankPlace& place);
std::vector<UnitSplit> split_units(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                                   const RankPlace& place);

// The path of a unit's module; "the rest" for what is in no unit of its own.
std::string name_of_unit(const FlatBuffer& unit);

// The rows of a table, which is a unit of its own, that have these elements.
Span rows_of(const FlatBuffer& table, Span elements);

// The unit as a UnitSchedule is told of it; `module` is a number that units of one module have in common.
ScheduledUnit scheduled_unit(const FlatBuffer& layout, const UnitSplit& split, std::size_t module);

// How the payloads of coded weights are made.
Codec codec_of(WeightCode code);

// The collective that gathers all parameters of a unit, so many times.
PlannedCollective gather_of(const UnitSplit& unit, std::int64_t times = 1);
// The one that gathers them from the shards of a subgroup.
PlannedCollective secondary_gather_of(const UnitSplit& unit, std::int64_t times = 1);
// The one that gathers the sums of its gradient.
PlannedCollective gradient_gather_of(const UnitSplit& unit);

}  // namespace keel
