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
      .ranks = place.ranks,
      .code = several ? options.sharding.weight_code : WeightCode::exact,
      .virtual_ranks = place.virtual_ranks,
      .is_pairwise = options.sharding.virtual_ranks > 0,
      .adds_sums = (several || place.summed_groups() > 1) && options.sharding.reduces_each(options.micro_batches),
      .whole = layout.padded,
      .shard = shard,
      .owned = several && stage.optimizer ? shard : whole,
      .values = options.policy.parameter,
      .gradient = accumulates ? options.policy.gradient : options.policy.parameter,
      .wire = options.wire_dtype()};
  const bool persists = stage.parameters && layout.padded < options.sharding.persistence_threshold;
  split.pages_values = options.sharding.offload_parameters != Residence::device && !persists;
  split.files_values = split.pages_values && options.sharding.offload_parameters == Residence::file;
  if (options.sharding.offload_gradients != Residence::device && layout.trainable && !layout.sparse) {
    const bool stays = options.micro_batches > 1 && !options.sharding.reduces_each(options.micro_batches);
    split.pages_gradient = !split.shards_gradients || stays;
    split.pages_sums = split.shards_gradients || split.adds_sums;
    split.files_gradients = options.sharding.offload_gradients == Residence::file;
  }
  split.files_state = options.sharding.offload_optimizer == Residence::file && layout.trainable;
  if (options.sharding.secondary && split.shards_parameters && place.has_subgroups()) split.secondary = place.subgroup;
  split.reduction = plan_reduction(layout, split, options.compression, place);
  return split;
}

std::vector<UnitSplit> split_units(std::span<const FlatBuffer> layout, const ShardedOptions& options,
                                   const RankPlace& place) {
  std::vector<UnitSplit> units;
  for (const FlatBuffer& buffer : layout) units.push_back(split_unit(buffer, options, place));
  return units;
}

std::string name_of_unit(const FlatBuffer& unit) { return unit.unit.empty() ? "the rest" : unit.unit; }

Span rows_of(const FlatBuffer& table, Span elements) {
  const std::int64_t width = std::max<std::int64_t>(table.segments.front().shape[1], 1);
  return {elements.begin / width, elements.end / width};
}

ScheduledUnit scheduled_unit(const FlatBuffer& layout, const UnitSplit& split, std::size_t module) {
  return {.module = module,
          .root = layout.unit.empty(),
          .trainable = split.trainable,
          .shards_parameters = split.values_come_and_go(),
          .fetches = split.pages_values && split.shards_parameters,
          .stores_gradient = split.pages_gradient,
          .gathers_sums = split.gathers_sums(),
          .leaves = layout.segments.size(),
          .gradient_bytes = split.gradient_bytes()};
}

Codec codec_of(WeightCode code) { return {.kind = code == WeightCode::int4 ? Codec::Kind::int4 : Codec::Kind::int8}; }

std::int64_t UnitSplit::gather_held() const {
  if (code == WeightCode::exact) return 0;
  return ((owns_all() ? 0 : 1) + ranks) * codec_of(code).bytes(shard.count());
}

PlannedCollective gather_of(const UnitSplit& unit, std::int64_t times) {
  const bool exact = unit.code == WeightCode::exact;
  return {.kind = CollectiveKind::all_gather,
          .count = exact ? unit.whole : unit.ranks * codec_of(unit.code).bytes(unit.shard.count()),
          .width = exact ? width_of(unit.values) : 1,
          .times = times,
          .of_parameters = true};
}

PlannedCollective secondary_gather_of(const UnitSplit& unit, std::int64_t times) {
  return {.kind = CollectiveKind::all_gather,
          .count = unit.whole,
          .width = width_of(unit.values),
          .times = times,
          .of_parameters = true,
          .axis = Axis::inside};
}

PlannedCollective gradient_gather_of(const UnitSplit& unit) {
  return {.kind = CollectiveKind::all_gather, .count = unit.whole, .width = width_of(unit.gradient)};
}

}  // namespace keel
