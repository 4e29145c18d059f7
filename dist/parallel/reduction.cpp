#include "keel/dist/parallel/reduction.h"

#include <algorithm>

#include "keel/dist/parallel/unit_split.h"

namespace keel {
namespace {

using StageKind = ReductionStage::Kind;

constexpr std::int64_t kWide = 4;  // bytes of fp32

void add_stage(ReductionPlan& plan, StageKind kind, const PlannedCollective& collective, std::int64_t held) {
  plan.stages.push_back({kind, collective, held, held});
}

ReductionPlan plan_sums(const UnitSplit& split) {
  ReductionPlan plan;
  const std::int64_t width = width_of(split.wire);
  if (split.sums_whole()) {
    add_stage(plan, StageKind::sum_whole, {CollectiveKind::all_reduce, split.whole, width}, 0);
    return plan;
  }
  // The sum of a step's first pass goes to where it stays, unless it has another dtype there.
  const std::int64_t shard = split.shard.count() * width;
  plan.stages.push_back({.kind = StageKind::scatter_sums,
                         .collective = {CollectiveKind::reduce_scatter, split.whole, width},
                         .held = split.gradient == split.wire ? 0 : shard,
                         .held_later = shard});
  return plan;
}

void gather_sums(ReductionPlan& plan, const UnitSplit& split) {
  const std::int64_t width = width_of(split.wire);
  if (split.sums_whole())
    add_stage(plan, StageKind::gather_sums, {CollectiveKind::all_gather, split.whole, width}, split.whole * width);
}

ReductionPlan plan_payloads(const UnitSplit& split, const Codec& codec, int ranks, bool feedback) {
  ReductionPlan plan{.state = feedback ? kWide * split.whole : 0, .residual = {0, feedback ? split.whole : 0}};
  const std::int64_t payload = ranks * codec.bytes(split.shard.count()), width = width_of(split.wire);
  // Payloads to all, or sums of shards: whatever is less.
  if (split.sums_whole() && payload <= payload / ranks + split.shard.count() * width) {
    add_stage(plan, StageKind::gather_payloads, {CollectiveKind::all_gather, ranks * payload, 1},
              payload + ranks * payload);
    return plan;
  }
  add_stage(plan, StageKind::scatter_payloads, {CollectiveKind::all_to_all, payload, 1}, 2 * payload);
  gather_sums(plan, split);
  return plan;
}

// A rank of a subgroup gets the payloads of all shards of its place, and then sends each where it belongs.
ReductionPlan plan_two_levels(const UnitSplit& split, const Codec& codec, const RankPlace& place) {
  ReductionPlan plan;
  const std::int64_t shard = codec.bytes(split.shard.count()), subgroups = place.ranks / place.subgroup;
  add_stage(plan, StageKind::scatter_inside,
            {CollectiveKind::all_to_all, place.ranks * shard, 1, 1, false, Axis::inside}, 2 * place.ranks * shard);
  add_stage(plan, StageKind::scatter_across, {CollectiveKind::all_to_all, subgroups * shard, 1, 1, false, Axis::across},
            2 * subgroups * shard);
  gather_sums(plan, split);
  return plan;
}

ReductionPlan plan_factors(const FlatBuffer& layout, std::int64_t rank) {
  std::int64_t left = layout.numel, right = 0;  // vectors go with the left factors, as they are
  for (const LowRank& part : low_rank_parts(layout, rank)) {
    left += part.rows * part.rank - part.rows * part.columns;
    right += part.rank * part.columns;
  }
  ReductionPlan plan{.state = kWide * (layout.padded + right), .residual = {0, layout.padded}};
  add_stage(plan, StageKind::left_factors, {CollectiveKind::all_reduce, left, kWide}, kWide * left);
  add_stage(plan, StageKind::right_factors, {CollectiveKind::all_reduce, right, kWide}, kWide * (left + right));
  return plan;
}

// Inside a group numbers, and across groups payloads of each group's sum: what they leave out is the rank's to keep.
ReductionPlan plan_coded_groups(const UnitSplit& split, const Codec& codec, int groups) {
  ReductionPlan plan = plan_sums(split);
  plan.feedback_stage = plan.stages.size();
  plan.residual = split.sums_whole() ? Span{0, split.whole} : split.shard;
  plan.state = kWide * plan.residual.count();
  const std::int64_t payload = codec.bytes(plan.residual.count());
  add_stage(plan, StageKind::gather_replicas,
            {CollectiveKind::all_gather, groups * payload, 1, 1, false, Axis::replicas}, (1 + groups) * payload);
  return plan;
}

}  // namespace

std::vector<LowRank> low_rank_parts(const FlatBuffer& layout, std::int64_t rank) {
  std::vector<LowRank> parts;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment& segment = layout.segments[i];
    if (segment.shape.size() < 2 || segment.numel == 0) continue;
    const std::int64_t rows = segment.shape[0], columns = segment.numel / rows;
    const std::int64_t used = std::min({rank, rows, columns});
    if (used * (rows + columns) < segment.numel) parts.push_back({i, rows, columns, used});
  }
  return parts;
}

Codec codec_of(const Compression& compression) {
  switch (compression.type) {
    case Compression::Type::int4: return {.kind = Codec::Kind::int4};
    case Compression::Type::qgz:
      return {.kind = compression.bits == Compression::Bits::four ? Codec::Kind::int4 : Codec::Kind::int8};
    case Compression::Type::top_k: return {.kind = Codec::Kind::top_k, .fraction = compression.fraction};
    default: return {.kind = Codec::Kind::int8};
  }
}

ReductionPlan plan_reduction(const FlatBuffer& layout, const UnitSplit& split, const Compression& compression,
                             const RankPlace& place) {
  ReductionPlan plan;
  const bool several = place.ranks > 1;
  if (place.summed_groups() > 1 && compression.kind().codec)
    return plan_coded_groups(split, codec_of(compression), place.summed_groups());
  if (several && compression.type == Compression::Type::power_sgd) {
    plan = plan_factors(layout, compression.rank);
  } else if (several && compression.type == Compression::Type::qgz && place.has_subgroups()) {
    plan = plan_two_levels(split, codec_of(compression), place);
  } else if (several && compression.kind().codec) {
    plan = plan_payloads(split, codec_of(compression), place.ranks, compression.kind().feedback);
  } else if (several || place.summed_groups() > 1) {
    plan = plan_sums(split);
  }
  if (place.summed_groups() == 1) return plan;
  const std::int64_t count = split.sums_whole() ? split.whole : split.shard.count();
  // In the memory where the group's sum is.
  const ReductionStage inside = plan.stages.back();
  plan.stages.push_back(
      {.kind = StageKind::sum_replicas,
       .collective = {CollectiveKind::all_reduce, count, width_of(split.wire), 1, false, Axis::replicas},
       .held = inside.held,
       .held_later = inside.held_later});
  return plan;
}

}  // namespace keel
