#include "keel/dist/plan/rank_plan.h"

#include <algorithm>

#include "keel/dist/parallel/engine_rules.h"
#include "keel/dist/parallel/rank_groups.h"
#include "keel/dist/parallel/step_tuning.h"
#include "keel/dist/plan/memory_peaks.h"
#include "keel/dist/plan/sent_bytes.h"
#include "keel/dist/plan/update_peaks.h"

namespace keel {
namespace {

// Numbers that an optimizer measures in a step.
std::int64_t measured_sums(std::span<const FlatBuffer> layout, const Optimizer& optimizer) {
  std::int64_t count = 0;
  for (const FlatBuffer& buffer : layout)
    for (const Segment& segment : buffer.segments)
      for (int pass = 0; buffer.trainable && pass < optimizer.requirements().passes; ++pass)
        count += optimizer.sum_count(pass, segment.shape);
  return count;
}

// Bytes that an optimizer keeps of single parameters, where it updates the elements `owned` of a unit: numbers for each
// element, and others.
struct KeptOfParameters {
  std::int64_t by_element = 0, others = 0;
};

KeptOfParameters kept_of_parameters(const FlatBuffer& buffer, const Optimizer& optimizer, const GroupRule& groups,
                                    Span owned, std::int64_t wide) {
  KeptOfParameters kept;
  for (const Segment& segment : buffer.segments) {
    const std::int64_t count = overlap(span_of(segment), owned).count();
    if (count == 0) continue;
    for (const StateKind& kind : optimizer.parameter_state(segment.shape, group_of(groups, segment)))
      (kind.by_element() ? kept.by_element : kept.others) += kind.bytes(count, wide);
  }
  return kept;
}

// What a rank has of matrices while they travel at the end of a step: on a device, and beside it where the optimizer
// works on the processor.
TierPeaks travelling_matrices(const MatrixDeal& deal, int rank, bool offloads) {
  if (deal.ranks() == 1 || (deal.by_everyone() && !deal.sharded())) return {};
  const std::int64_t elements = deal.sharded() ? deal.sent(rank) + deal.dealt(rank) : deal.ranks() * deal.most_dealt();
  const std::int64_t bytes = width_of(deal.dtype()) * elements;
  return {bytes, offloads ? bytes : 0};
}

// Elements of parameters, without padding.
std::int64_t count_parameters(const FlatBuffer& buffer, Span among) {
  std::int64_t count = 0;
  for (const Segment& segment : buffer.segments) count += overlap(span_of(segment), among).count();
  return count;
}

// What a unit's parameters are gathered by in a step, so many times where they are gathered at all. Those of a frozen
// unit never change.
void plan_gathers(RankPlan& plan, const UnitSplit& unit, std::int64_t times) {
  if (!unit.shards_parameters && !unit.shares_updates()) return;
  const std::int64_t first = unit.secondary == 0 ? times : unit.trainable ? 1 : 0;
  if (first > 0) plan.collectives.push_back(gather_of(unit, first));
  if (times > first) plan.collectives.push_back(secondary_gather_of(unit, times - first));
}

StrategyCost plan_strategy(RankPlan& plan, std::span<const UnitSplit> units, const CommunicationStrategy& strategy,
                           const StrategyPlace& place) {
  std::vector<StrategyNumbers> numbers;
  for (const UnitSplit& unit : units)
    if (unit.trainable) numbers.push_back({unit.owned.count(), unit.owns_all() ? unit.ranks : 1});
  const StrategyCost cost = strategy.cost(numbers, place);
  plan.memory.optimizer += cost.state;
  plan.memory.host += cost.host_state;
  plan.traffic.strategy = cost.sent;
  plan.traffic.strategy_steps = cost.every;
  return cost;
}

// Of the first group all states, and how many steps there were; of others their own, and what counts their steps.
std::int64_t saved_strategy(const StrategyCost& strategy, std::span<const FlatBuffer> layout,
                            std::span<const UnitSplit> units, bool in_first_group) {
  std::int64_t trained = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (units[i].trainable) trained += count_parameters(layout[i], units[i].owned);
  const int tensors = in_first_group ? strategy.saved : strategy.saved_of_group, steps = in_first_group ? 1 : 5;
  return tensors * trained * static_cast<std::int64_t>(sizeof(float)) +
         steps * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace

std::vector<MatrixDeal> plan_matrices(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                      const ShardedOptions& options, int ranks) {
  std::vector<const FlatBuffer*> units;
  for (const FlatBuffer& unit : layout) units.push_back(&unit);
  return deal_matrices(units, optimizer, options, ranks);
}

std::vector<PlannedCollective> matrix_collectives(const MatrixDeal& deal, int rank) {
  if (deal.ranks() == 1) return {};
  PlannedCollective each{.kind = CollectiveKind::all_gather,
                         .count = deal.ranks() * deal.most_dealt(),
                         .width = width_of(deal.dtype()),
                         .of_matrices = true};
  if (!deal.sharded()) return deal.by_everyone() ? std::vector<PlannedCollective>{} : std::vector{each};
  each.kind = CollectiveKind::all_to_all;
  each.stays = deal.exchanged(rank, rank);
  PlannedCollective back = each;
  each.count = deal.sent(rank);
  back.count = deal.dealt(rank);
  if (deal.by_everyone()) return {each};
  return {each, back};
}

std::int64_t control_bytes(int ranks) { return ranks * static_cast<std::int64_t>(sizeof(StepPartial)); }

RankPlace check_planned(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                        int ranks, int rank) {
  KEEL_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "there is no rank ", rank, " of ", ranks);
  check_ranks(options, optimizer.requirements(), ranks);
  check_gradients(layout, optimizer);
  for (const FlatBuffer& buffer : layout)
    KEEL_CHECK(!buffer.sparse, "memory and bytes of ", buffer.segments.front().name,
               ", whose gradient is kept as rows, follow from what each batch looks up; there is no plan of them");
  RankPlace place = place_of(options, ranks, rank);
  place.sums_groups = sums_groups(options, optimizer);
  return place;
}

RankPlan plan_rank(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank, const PlanSite& site) {
  const auto& [buffers, route, computes_on_device, fewer_micro_batches] = site;
  const bool on_device = computes_on_device || options.sharding != options.sharding.on_processor();
  const RankPlace place = check_planned(layout, optimizer, options, ranks, rank);
  PrecisionPolicy policy = options.policy;
  policy.keeps_master = optimizer.requirements().master;
  policy.averages = optimizer.requirements().averages;
  const std::int64_t wide = width_of(policy.master_dtype());
  const std::int64_t state_width = wide * static_cast<std::int64_t>(optimizer.state_names().size());
  const std::int64_t state_bytes = state_width + (policy.master() ? wide : 0);
  const ShardingOptions& sharding = options.sharding;
  const std::int64_t micro_batches = fewer_micro_batches > 0 ? fewer_micro_batches : options.micro_batches;
  const std::int64_t reductions = sharding.reduces_each(options.micro_batches) ? micro_batches : 1;
  const std::int64_t passes = micro_batches * place.virtual_ranks;
  const std::vector<UnitSplit> units = split_units(layout, options, place);
  const std::vector<MatrixDeal> deals = plan_matrices(layout, optimizer, options, place.ranks);
  std::vector<Span> batches;
  for (const MatrixDeal& deal : deals) batches.push_back(deal.units());
  if (deals.empty()) batches.push_back({0, static_cast<std::int64_t>(units.size())});
  // The optimizer works in the processor's memory, for a device.
  const bool offloads = sharding.offloads_optimizer() && on_device;
  const FilePlan files = sharding.pages()
                             ? plan_files({layout, units, policy, optimizer, options.groups, on_device, offloads},
                                          sharding.offload_budget, batches)
                             : FilePlan{};
  const bool answers = only_answers(units);
  const std::string last = last_module(layout);

  RankPlan plan;
  plan.updates_on_host = offloads;
  std::int64_t shared = 0;     // buffers in which updated weights travel, the most of a unit
  std::int64_t at_start = 0;   // those in which frozen weights do, before there is anything else
  std::int64_t gradients = 0;  // that have come to the processor
  const bool has_strategy = !place.sums_groups && place.groups > 1;
  // As Sharded::holds_parts() and holds_group_parts(). Groups with a strategy have weights of their own.
  const bool saves_group = kShardingStages[sharding.stage].optimizer || place.rank == 0;
  plan.saves = saves_group && rank < place.ranks;
  const bool saves = plan.saves || (saves_group && has_strategy);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const UnitSplit& unit = units[i];
    const std::int64_t value_bytes = width_of(unit.values), gradient_bytes = width_of(unit.gradient);
    const std::int64_t kept = (unit.keeps_own() ? unit.owned.count() : 0) + (unit.shards_parameters ? 0 : unit.whole) +
                              (unit.secondary > 0 ? unit.whole / unit.secondary : 0);
    if (!unit.files_values) (unit.pages_values ? plan.memory.host : plan.memory.parameter) += kept * value_bytes;
    const bool stays = answers || !sharding.reshard_after_forward || layout[i].unit.empty() ||
                       (sharding.keep_last_unit && layout[i].unit == last);
    plan_gathers(plan, unit, unit.shards_parameters ? passes * (stays ? 1 : 2) : 1);
    std::int64_t& travelling = unit.trainable ? shared : at_start;
    if (!unit.shards_parameters) travelling = std::max(travelling, unit.gather_held());
    const std::int64_t mine = count_parameters(layout[i], unit.owned), numbers = saves ? mine : 0;
    plan.owned += mine;
    plan.memory.checkpoint += numbers * (unit.trainable && policy.master() ? wide : value_bytes);
    if (!unit.trainable) continue;
    plan.memory.gradient += unit.gradients_kept() * gradient_bytes;
    if (!unit.files_gradients) plan.memory.host += unit.gradients_paged() * gradient_bytes;
    plan.memory.partial_sums += unit.partial_sums() * width_of(unit.wire);
    if (const std::int64_t kept = unit.reduction.state; kept > 0) {
      plan.memory.undelivered += kept;
      const Span residual = unit.reduction.residual;
      plan.memory.checkpoint += kept - 4 * (residual.count() - count_parameters(layout[i], residual));
    }
    const KeptOfParameters own = kept_of_parameters(layout[i], optimizer, options.groups, unit.owned, wide);
    const std::int64_t state = own.others + (unit.files_state ? 0 : unit.owned.count() * state_bytes + own.by_element);
    if (saves) plan.memory.checkpoint += numbers * state_width + own.by_element + own.others;
    const std::int64_t values = unit.owned.count() * value_bytes;
    if (offloads) {
      plan.memory.host += state + (unit.files_state ? 0 : values);
      plan.traffic.offload += values;
      if (unit.gradients_paged() == 0)
        plan.traffic.offload += unit.owned.count() * gradient_bytes * (sharding.pages() ? files.gradient_reads[i] : 1);
      gradients += unit.owned.count() * gradient_bytes;
    } else {
      plan.memory.optimizer += state;
    }
    for (const ReductionStage& stage : unit.reduction.stages) {
      if (stage.collective.count == 0) continue;
      plan.collectives.push_back(stage.collective);
      plan.collectives.back().times = reductions;
    }
    if (unit.gathers_sums()) plan.collectives.push_back(gradient_gather_of(unit));
  }
  for (const MatrixDeal& deal : deals) {
    plan.matrix_operations += deal.operations(optimizer, place.rank);
    for (const PlannedCollective& each : matrix_collectives(deal, place.rank)) plan.collectives.push_back(each);
  }
  for (const PlannedCollective& each : plan.collectives)
    (each.of_matrices     ? plan.traffic.matrices
     : each.of_parameters ? plan.traffic.gathers
                          : plan.traffic.reductions) += SentBytes::on(each.axis, route, place, rank).of(each);
  // Those who decide a step together.
  const int deciders = place.ranks * place.summed_groups();
  const int told = deciders * place.virtual_ranks;
  const SentBytes decider(route, deciders, rank % deciders);
  plan.traffic.control = decider.elements(CollectiveKind::all_gather, control_bytes(told));
  if (place.ranks > 1)
    plan.traffic.control += decider.elements(CollectiveKind::all_gather, told * 8 * measured_sums(layout, optimizer));
  if (optimizer.requirements().closure)  // the losses of all ranks
    plan.traffic.control += decider.elements(CollectiveKind::all_gather, deciders * 8);
  if (const SharedNumber* shared = optimizer.shared_number(); shared != nullptr && saves)
    plan.memory.checkpoint += static_cast<std::int64_t>(sizeof(double)) * shared->count;
  constexpr auto kNumber = static_cast<std::int64_t>(sizeof(float));
  plan.memory.parameter += kNumber * buffers.numbers;
  if (rank == 0) plan.memory.checkpoint += kNumber * buffers.numbers;
  plan.traffic.control +=
      decider.elements(CollectiveKind::all_gather, told * kNumber * (buffers.moving_numbers + buffers.moving_buffers));
  StrategyCost strategy;
  if (has_strategy) {
    strategy = plan_strategy(plan, units, *options.strategy(), {place.groups, rank / place.ranks, route, offloads});
    if (saves) plan.memory.checkpoint += saved_strategy(strategy, layout, units, rank < place.ranks);
  }
  plan.memory.gradient += plan.memory.undelivered + plan.memory.partial_sums;
  plan.memory.file = files.room;
  plan.traffic.file_read = files.read;
  plan.traffic.file_written = files.written;
  plan.traffic.offload += files.moved;
  if (sharding.pages() && ranks > 1)
    plan.traffic.control +=
        2 * SentBytes(route, ranks, rank)
                .elements(CollectiveKind::all_gather, ranks * static_cast<std::int64_t>(sizeof(int)));
  if (ranks > 1 || sharding.pages()) {
    ShardedOptions walked = options;
    if (!answers)
      walked.sharding =
          largest_tried(options, static_cast<std::size_t>(std::ranges::count_if(units, &UnitSplit::shards_parameters)));
    const MemoryPeaks peaks = memory_peaks(units, walk_step(layout, units, walked), on_device);
    plan.memory.gathered = peaks.gathered;
    plan.memory.whole_gradients = peaks.whole_gradients;
    plan.memory.buckets = peaks.all;
    plan.memory.host_buckets = peaks.host;
    const auto add = [&](Residence residence, std::int64_t read, std::int64_t written) {
      const bool in_file = residence == Residence::file;
      plan.traffic.file_read += in_file ? read : 0;
      plan.traffic.file_written += in_file ? written : 0;
      plan.traffic.offload += on_device || !in_file ? read + written : 0;
    };
    add(sharding.offload_parameters, peaks.values_read, 0);
    add(sharding.offload_gradients, peaks.gradients_read, peaks.gradients_written);
  }
  // By an update. What a strategy leads to is shared when it has ended, and what it holds is there until then.
  TierPeaks held;
  if (!sharding.pages()) held = {shared, gradients};
  held = held | TierPeaks{strategy.at_once, strategy.host_at_once};
  for (std::size_t i = 0; i < batches.size(); ++i) {
    TierPeaks matrices, moving;
    if (!deals.empty()) {
      (offloads ? matrices.host : matrices.here) = wide * deals[i].owned(place.rank);
      moving = travelling_matrices(deals[i], place.rank, offloads);
      if (!sharding.pages()) moving.host += gradients;
    }
    if (sharding.pages()) moving = moving | files.walks[i];
    held = held | (matrices + moving + TierPeaks{strategy.held, 0});
  }
  plan.memory.buckets = std::max(plan.memory.buckets, at_start);
  if (held.here > 0) plan.memory.buckets = std::max(plan.memory.buckets, held.here + plan.memory.undelivered);
  plan.memory.host_buckets = std::max(plan.memory.host_buckets, held.host);
  return plan;
}

}  // namespace keel
