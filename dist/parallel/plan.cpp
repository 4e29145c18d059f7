#include "keel/dist/parallel/plan.h"

#include <algorithm>
#include <vector>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/parallel/planned_step.h"

namespace keel {
namespace {

// One rank of a group, and the elements that it sends for a collective of `count` of them.
class Sender {
 public:
  Sender(std::string_view algorithm, int ranks, int rank)
      : algorithm_(find_algorithm(algorithm)), shape_{.rank = rank, .size = ranks} {}

  std::int64_t bytes(const PlannedCollective& c) const {
    const bool has_counts = c.of_matrices && c.kind == CollectiveKind::all_to_all;
    return c.times * c.width * (has_counts ? c.count - c.stays : elements(c.kind, c.count));
  }
  std::int64_t elements(CollectiveKind kind, std::int64_t count) const {
    const std::int64_t own = part({0, count}, shape_.size, shape_.rank).count();
    const bool is_direct = algorithm_.name == "direct";  // whose formula is quicker than its schedule
    switch (kind) {
      case CollectiveKind::all_to_all: return count - own;
      case CollectiveKind::reduce_scatter: return is_direct ? count - own : sent(algorithm_.reduce_scatter, count);
      case CollectiveKind::all_gather: return is_direct ? (shape_.size - 1) * own : sent(algorithm_.all_gather, count);
      case CollectiveKind::all_reduce:  // first to whoever adds a part, then that to all
        return is_direct ? count - own + (shape_.size - 1) * own : sent(algorithm_.all_reduce, count);
      default: throw Error(concat("a step has no ", name_of(kind)), ErrorKind::internal);
    }
  }

 private:
  std::int64_t sent(Schedule (*write)(const CollectiveShape&), std::int64_t count) const {
    CollectiveShape shape = shape_;
    shape.count = count;
    return write(shape).elements_sent();
  }

  const Algorithm& algorithm_;
  CollectiveShape shape_;
};

// Numbers that an optimizer measures in a step.
std::int64_t measured_sums(std::span<const FlatBuffer> layout, const Optimizer& optimizer) {
  std::int64_t count = 0;
  for (const FlatBuffer& buffer : layout)
    for (const Segment& segment : buffer.segments)
      for (int pass = 0; buffer.trainable && pass < optimizer.requirements().passes; ++pass)
        count += optimizer.sum_count(pass, segment.shape);
  return count;
}

// Bytes that an optimizer keeps of single parameters, where it updates the elements `owned` of a unit.
std::int64_t kept_of_parameters(const FlatBuffer& buffer, const Optimizer& optimizer, const GroupRule& groups,
                                Span owned, std::int64_t wide) {
  std::int64_t bytes = 0;
  for (const Segment& segment : buffer.segments) {
    const std::int64_t begin = std::max(segment.offset, owned.begin);
    const std::int64_t end = std::min(segment.offset + segment.numel, owned.end);
    if (begin >= end) continue;
    for (const StateKind& kind : optimizer.parameter_state(segment.shape, group_of(groups, segment)))
      bytes += kind.bytes(end - begin, wide);
  }
  return bytes;
}

// What a rank has of matrices at the end of a step.
std::int64_t matrix_bytes(const MatrixDeal& deal, int rank, bool offloaded, std::int64_t wide) {
  const auto width = static_cast<std::int64_t>(size_of(deal.dtype()));
  const std::int64_t travelling = deal.ranks() == 1 ? 0
                                  : deal.sharded()  ? deal.owned(rank) + deal.dealt(rank)
                                                    : deal.ranks() * deal.most_dealt();
  return width * travelling + (offloaded ? 0 : wide * deal.owned(rank));
}

// Whether a rank saves weights and state; see Sharded::holds_parts().
bool saves_parts(const ShardingOptions& options, int ranks, int rank) {
  const int group = shard_ranks(options, ranks);
  return group < ranks ? rank < group : kShardingStages[options.stage].optimizer || rank == 0;
}

// Elements of parameters, without padding.
std::int64_t count_parameters(const FlatBuffer& buffer, Span among) {
  std::int64_t count = 0;
  for (const Segment& segment : buffer.segments)
    count += std::max<std::int64_t>(
        0, std::min(segment.offset + segment.numel, among.end) - std::max(segment.offset, among.begin));
  return count;
}

}  // namespace

std::optional<MatrixDeal> plan_matrices(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                        const ShardedOptions& options, int ranks) {
  if (!optimizer.requirements().matrices) return {};
  std::vector<const FlatBuffer*> units;
  for (const FlatBuffer& unit : layout) units.push_back(&unit);
  return MatrixDeal(units, optimizer, options.groups, ranks, kShardingStages[options.sharding.stage].optimizer,
                    options.policy.parameter == DType::f64 ? DType::f64 : DType::f32);
}

std::vector<PlannedCollective> matrix_collectives(const MatrixDeal& deal, int rank) {
  if (deal.ranks() == 1) return {};
  PlannedCollective each{.kind = CollectiveKind::all_gather,
                         .count = deal.ranks() * deal.most_dealt(),
                         .width = static_cast<std::int64_t>(size_of(deal.dtype())),
                         .of_matrices = true};
  if (!deal.sharded()) return {each};
  each.kind = CollectiveKind::all_to_all;
  each.stays = deal.exchanged(rank, rank);
  PlannedCollective back = each;
  each.count = deal.owned(rank);
  back.count = deal.dealt(rank);
  return {each, back};
}

std::int64_t control_bytes(int ranks) { return ranks * static_cast<std::int64_t>(sizeof(StepPartial)); }

std::string name_of_unit(const FlatBuffer& unit) { return unit.unit.empty() ? "the rest" : unit.unit; }

int shard_ranks(const ShardingOptions& options, int ranks) {
  return options.group == 0 || !kShardingStages[options.stage].optimizer ? ranks : options.group;
}

RankPlan plan_rank(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank, const BufferCount& buffers, std::string_view algorithm) {
  check_planned(layout, optimizer, options, ranks, rank);
  PrecisionPolicy policy = options.policy;
  policy.keeps_master = optimizer.requirements().master;
  policy.averages = optimizer.requirements().averages;
  const auto wide = static_cast<std::int64_t>(policy.parameter == DType::f64 ? 8 : 4);
  const std::int64_t state_width = wide * static_cast<std::int64_t>(optimizer.state_names().size());
  const std::int64_t state_bytes = state_width + (policy.master() ? wide : 0);
  const ShardingOptions& sharding = options.sharding;
  const std::int64_t reductions = sharding.reduces_each(options.micro_batches) ? options.micro_batches : 1;
  const int group = shard_ranks(sharding, ranks), groups = ranks / group;
  const std::vector<PlannedUnit> units = plan_units(layout, options, group, rank % group, groups);
  const PlannedStep step(units, options, groups);

  const bool answers = only_answers(units);

  RankPlan plan;
  std::int64_t arriving = 0;  // weights that come back from the processor, the most of a unit
  const bool saves = plan.saves = saves_parts(sharding, ranks, rank);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const PlannedUnit& unit = units[i];
    plan.memory.parameter += (unit.shards_parameters ? unit.shard : unit.whole) * unit.value_bytes;
    const bool is_last = unit.module == units[step.last_unit()].module;
    const bool stays = answers || !sharding.reshard_after_forward || unit.root || (sharding.keep_last_unit && is_last);
    if (unit.shards_parameters || unit.shares_updates())
      plan.collectives.push_back(gather_of(unit, unit.shards_parameters ? options.micro_batches * (stays ? 1 : 2) : 1));
    const Span owned = unit.owned == unit.whole ? Span{0, unit.whole} : part({0, unit.whole}, group, rank % group);
    const std::int64_t mine = count_parameters(layout[i], owned), numbers = saves ? mine : 0;
    plan.owned += mine;
    plan.memory.checkpoint += numbers * (unit.trainable && policy.master() ? wide : unit.value_bytes);
    if (!unit.trainable) continue;
    plan.memory.gradient += unit.gradients_kept() * unit.gradient_bytes;
    if (unit.compression) {
      plan.memory.undelivered += unit.compression->state;
      plan.memory.checkpoint +=
          unit.compression->state - 4 * (unit.whole - count_parameters(layout[i], {0, unit.whole}));
    }
    const std::int64_t of_parameters = kept_of_parameters(layout[i], optimizer, options.groups, owned, wide);
    const std::int64_t state = unit.owned * state_bytes + of_parameters;
    if (saves) plan.memory.checkpoint += numbers * state_width + of_parameters;
    const std::int64_t values = unit.owned * unit.value_bytes;
    if (sharding.offload_optimizer) {
      plan.memory.host += state + values;
      plan.traffic.offload += unit.owned * unit.gradient_bytes + values;
      arriving = std::max(arriving, values);
    } else {
      plan.memory.optimizer += state;
    }
    for (const PlannedCollective& each : reductions_of(unit, reductions, groups)) plan.collectives.push_back(each);
    if (unit.gathers_sums()) plan.collectives.push_back(gradient_gather_of(unit));
  }
  const std::optional<MatrixDeal> deal = plan_matrices(layout, optimizer, options, group);
  if (deal)
    for (const PlannedCollective& each : matrix_collectives(*deal, rank % group)) plan.collectives.push_back(each);
  if (ranks == 1) plan.collectives.clear();
  const Sender inside(algorithm, group, rank % group), across(algorithm, groups, rank / group);
  for (const PlannedCollective& each : plan.collectives)
    (each.of_matrices     ? plan.traffic.matrices
     : each.of_parameters ? plan.traffic.gathers
                          : plan.traffic.reductions) += (each.across_groups ? across : inside).bytes(each);
  plan.traffic.control = Sender(algorithm, ranks, rank).elements(CollectiveKind::all_gather, control_bytes(ranks));
  if (group > 1)
    plan.traffic.control += Sender(algorithm, ranks, rank)
                                .elements(CollectiveKind::all_gather, ranks * 8 * measured_sums(layout, optimizer));
  if (optimizer.requirements().closure)  // the losses of all ranks
    plan.traffic.control += Sender(algorithm, ranks, rank).elements(CollectiveKind::all_gather, ranks * 8);
  if (const SharedNumber* shared = optimizer.shared_number(); shared != nullptr && saves)
    plan.memory.checkpoint += static_cast<std::int64_t>(sizeof(double)) * shared->count;
  constexpr auto kNumber = static_cast<std::int64_t>(sizeof(float));
  plan.memory.parameter += kNumber * buffers.numbers;
  if (rank == 0) plan.memory.checkpoint += kNumber * buffers.numbers;
  plan.traffic.control +=
      Sender(algorithm, ranks, rank)
          .elements(CollectiveKind::all_gather, ranks * kNumber * (buffers.moving_numbers + buffers.moving_buffers));
  plan.memory.gradient += plan.memory.undelivered;
  if (ranks > 1) step.report(plan.memory);
  if (deal)
    plan.memory.buckets =
        std::max(plan.memory.buckets,
                 matrix_bytes(*deal, rank % group, sharding.offload_optimizer, wide) + plan.memory.undelivered);
  if (arriving > 0) plan.memory.buckets = std::max(plan.memory.buckets, arriving + plan.memory.undelivered);
  return plan;
}

}  // namespace keel
