#include "keel/dist/parallel/unit_split.h"

namespace keel {

UnitSplit split_unit(const FlatBuffer& layout, const ShardedOptions& options, const RankPlace& place) {
  const ShardingStage& stage = kShardingStages[options.sharding.stage];
  const bool several = place.ranks > 1, accumulates = options.micro_batches > 1 || layout.tied;
  const Span whole{0, layout.padded}, shard = part(whole, place.ranks, place.rank);
  UnitSplit split{
      .trainable = layout.trainable,
      .by_rows = layout.sparse,
      .shards_parameters = several && stage.parameters && layout.padded >= options.sharding.persistence_threshold,
      .shards_gradients = several && stage.gradients,
      .adds_sums = (several || place.groups > 1) && options.sharding.reduces_each(options.micro_batches),
      .whole = layout.padded,
      .shard = shard,
      .owned = several && stage.optimizer ? shard : whole,
      .values = options.policy.parameter,
      .gradient = accumulates ? options.policy.gradient : options.policy.parameter,
      .wire = options.wire_dtype()};
  if (layout.trainable && !layout.sparse)
    split.reduction = plan_reduction(layout, split, options.compression, place.ranks, place.groups);
  return split;
}

std::vector<UnitSplit> split_units(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                                   const RankPlace& place) {
  std::vector<UnitSplit> units;
  for (const FlatBuffer& buffer : layout) units.push_back(split_unit(buffer, options, place));
  return units;
}

ScheduledUnit scheduled_unit(const FlatBuffer& layout, const UnitSplit& split, std::size_t module) {
  return {.module = module,
          .root = layout.unit.empty(),
          .trainable = split.trainable,
          .shards_parameters = split.shards_parameters,
          .gathers_sums = split.gathers_sums(),
          .leaves = layout.segments.size(),
          .gradient_bytes = split.gradient_bytes()};
}

PlannedCollective gather_of(const UnitSplit& unit, std::int64_t times) {
  return {.kind = CollectiveKind::all_gather,
          .count = unit.whole,
          .width = static_cast<std::int64_t>(size_of(unit.values)),
          .times = times,
          .of_parameters = true};
}

PlannedCollective gradient_gather_of(const UnitSplit& unit) {
  return {.kind = CollectiveKind::all_gather,
          .count = unit.whole,
          .width = static_cast<std::int64_t>(size_of(unit.gradient))};
}

}  // namespace keel
