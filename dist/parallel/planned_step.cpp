#include "keel/dist/parallel/planned_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace keel {
namespace {

// The units of each module in the order of the first forward pass: the root begins before the units in it.
std::vector<std::vector<std::size_t>> forward_order(const std::vector<PlannedUnit>& units) {
  std::vector<std::vector<std::size_t>> order;
  for (const bool root : {true, false})
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (units[i].root != root) continue;
      const auto same = [&](const std::vector<std::size_t>& other) {
        return units[other.front()].module == units[i].module;
      };
      const auto found = std::find_if(order.begin(), order.end(), same);
      if (found == order.end()) order.push_back({i});
      else found->push_back(i);
    }
  return order;
}

// As the schedule is told of them. A gradient begins and ends: that makes two leaves.
std::vector<ScheduledUnit> scheduled(const std::vector<PlannedUnit>& units) {
  std::vector<ScheduledUnit> all;
  for (const PlannedUnit& unit : units)
    all.push_back({.module = unit.module,
                   .root = unit.root,
                   .trainable = unit.trainable,
                   .shards_parameters = unit.shards_parameters,
                   .gathers_sums = unit.gathers_sums(),
                   .leaves = 2,
                   .gradient_bytes = unit.whole * unit.gradient_bytes});
  return all;
}

// Of every unit.
std::vector<std::size_t> modules_of(std::span<const FlatBuffer> layout) {
  std::vector<std::size_t> modules;
  for (const FlatBuffer& buffer : layout) {
    const auto same = [&](const FlatBuffer& other) { return other.unit == buffer.unit; };
    modules.push_back(static_cast<std::size_t>(std::find_if(layout.begin(), layout.end(), same) - layout.begin()));
  }
  return modules;
}

}  // namespace

void check_planned(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank) {
  KEEL_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "there is no rank ", rank, " of ", ranks);
  KEEL_CHECK(options.sharding.stage >= 0 && options.sharding.stage <= 3, "the stages of sharding are 0 to 3, got ",
             options.sharding.stage);
  const int group = shard_ranks(options.sharding, ranks);
  KEEL_CHECK(ranks % group == 0, "groups of ", group, " ranks do not divide the ", ranks, " that there are");
  check_gradients(layout, optimizer);
  for (const FlatBuffer& buffer : layout)
    KEEL_CHECK(!buffer.sparse, "memory and bytes of ", buffer.segments.front().name,
               ", whose gradient is kept as rows, follow from what each batch looks up; there is no plan of them");
}

bool only_answers(std::span<const PlannedUnit> units) {
  return std::none_of(units.begin(), units.end(), [](const PlannedUnit& unit) { return unit.trainable; });
}

std::vector<PlannedUnit> plan_units(std::span<const FlatBuffer> layout, const ShardedOptions& options, int ranks,
                                    int rank, int groups) {
  const ShardingStage& stage = kShardingStages[options.sharding.stage];
  const bool several = ranks > 1;
  const bool adds_sums = (several || groups > 1) && options.sharding.reduces_each(options.micro_batches);
  const DType wire = options.wire_dtype();
  const std::vector<std::size_t> modules = modules_of(layout);
  std::vector<PlannedUnit> units;
  for (const FlatBuffer& buffer : layout) {
    const DType gradient =
        options.micro_batches > 1 || buffer.tied ? options.policy.gradient : options.policy.parameter;
    const std::int64_t shard = part({0, buffer.padded}, ranks, rank).count();
    units.push_back(
        {.module = modules[units.size()],
         .root = buffer.unit.empty(),
         .trainable = buffer.trainable,
         .shards_parameters = several && stage.parameters && buffer.padded >= options.sharding.persistence_threshold,
         .shards_gradients = several && stage.gradients,
         .adds_sums = adds_sums,
         .whole = buffer.padded,
         .shard = shard,
         .owned = several && stage.optimizer ? shard : buffer.padded,
         .value_bytes = static_cast<std::int64_t>(size_of(options.policy.parameter)),
         .gradient_bytes = static_cast<std::int64_t>(size_of(gradient)),
         .wire_bytes = static_cast<std::int64_t>(size_of(wire)),
         .converts = gradient != wire});
    if (PlannedUnit& unit = units.back(); several && unit.trainable && options.compression.kind().feedback)
      unit.compression =
          plan_compression(buffer, options.compression, ranks, !adds_sums && unit.owned == unit.whole, wire);
  }
  return units;
}

PlannedCollective gather_of(const PlannedUnit& unit, std::int64_t times) {
  return {.kind = CollectiveKind::all_gather,
          .count = unit.whole,
          .width = unit.value_bytes,
          .times = times,
          .of_parameters = true};
}

PlannedCollective gradient_gather_of(const PlannedUnit& unit) {
  return {.kind = CollectiveKind::all_gather, .count = unit.whole, .width = unit.gradient_bytes};
}

std::vector<PlannedCollective> reductions_of(const PlannedUnit& unit, std::int64_t times, int groups) {
  using Kind = CollectiveKind;
  std::vector<PlannedCollective> all;
  const auto add = [&](Kind kind, std::int64_t count, std::int64_t width, bool across = false) {
    if (count > 0) all.push_back({kind, count, width, times, false, across});
  };
  if (unit.compression) {
    const CompressionPlan& compressed = *unit.compression;
    add(Kind::all_to_all, compressed.exchanged, 1);
    add(Kind::all_gather, compressed.gathered, 1);
    add(Kind::all_gather, compressed.gathered_sums, unit.wire_bytes);
    add(Kind::all_reduce, compressed.reduced, 4);
    add(Kind::all_reduce, compressed.reduced_later, 4);
    return all;
  }
  const bool is_whole = !unit.adds_sums && unit.owned == unit.whole;
  add(is_whole ? Kind::all_reduce : Kind::reduce_scatter, unit.whole, unit.wire_bytes);
  if (groups > 1) add(Kind::all_reduce, unit.owned, unit.wire_bytes, true);
  return all;
}

PlannedStep::PlannedStep(const std::vector<PlannedUnit>& units, const ShardedOptions& options, int groups)
    : units_(units),
      schedule_(scheduled(units), options.sharding),
      order_(forward_order(units)),
      states_(units.size()),
      crosses_groups_(groups > 1) {
  for (const auto& module : order_) schedule_.forward_begins(units_[module.front()].module);  // the step before
  schedule_.given_back();
  const bool reduces_each = options.sharding.reduces_each(options.micro_batches), answers = only_answers(units);
  for (micro_batch_ = 1; micro_batch_ <= options.micro_batches; ++micro_batch_) {
    const bool last = micro_batch_ == options.micro_batches;
    forward();
    if (answers) perform(schedule_.given_back());
    else backward(last || reduces_each, last);
  }
}

void PlannedStep::report(MemoryPlan& memory) const {
  memory.gathered = gathered_.peak;
  memory.whole_gradients = gradients_.peak;
  memory.buckets = all_.peak;
}

void PlannedStep::Count::add(std::int64_t bytes) { peak = std::max(peak, now += bytes); }

void PlannedStep::count(Count& kind, std::int64_t bytes) {
  kind.add(bytes);
  all_.add(bytes);
}

void PlannedStep::forward() {
  for (const std::vector<std::size_t>& module : order_) {
    perform(schedule_.forward_begins(units_[module.front()].module));
    for (const std::size_t unit : module) note(StepEvent::Kind::forward, unit);
    perform(schedule_.forward_ends(units_[module.front()].module, /*backward_follows=*/true));
  }
}

void PlannedStep::backward(bool reduces, bool last) {
  perform(schedule_.backward_begins({.reduces = reduces, .last = last}));
  for (std::size_t unit = 0; unit < units_.size(); ++unit)  // the last layer may be the root's, and its first ends last
    if (units_[unit].root && units_[unit].trainable) hold_gradient(unit, true);
  for (const bool root : {false, true})
    for (std::size_t place = order_.size(); place-- > 0;)
      if (units_[order_[place].front()].root == root) compute_backward(order_[place]);
  perform(schedule_.backward_ends());
}

void PlannedStep::compute_backward(const std::vector<std::size_t>& units) {
  for (const std::size_t unit : units) perform(schedule_.touched(unit));
  std::vector<std::size_t> trained;
  std::ranges::copy_if(units, std::back_inserter(trained), [&](std::size_t unit) { return units_[unit].trainable; });
  for (const std::size_t unit : trained) hold_gradient(unit, true);
  for (const std::size_t unit : trained) perform(schedule_.leaf_passed(unit));
  for (const std::size_t unit : units) note(StepEvent::Kind::backward, unit);
  for (const std::size_t unit : trained) perform(schedule_.leaf_passed(unit));
}

void PlannedStep::perform(const UnitSchedule::Actions& actions) {
  using Kind = UnitAction::Kind;
  for (const auto& [kind, unit] : actions) {
    const std::int64_t whole = units_[unit].whole * units_[unit].value_bytes;
    switch (kind) {
      case Kind::gather:
        count(gathered_, whole);
        note(StepEvent::Kind::gather, unit);
        break;
      case Kind::release: count(gathered_, -whole); break;
      case Kind::begin_reduce: begin_reduce(unit); break;
      case Kind::continue_reduce: continue_reduce(unit); break;
      case Kind::finish_reduce: finish_reduce(unit); break;
      case Kind::gather_gradient: note(StepEvent::Kind::gather_gradient, unit); break;
      case Kind::wait_gathered:
      case Kind::wait_gradient: break;
    }
  }
}

void PlannedStep::hold_gradient(std::size_t unit, bool wanted) {
  if (!units_[unit].shards_gradients || std::exchange(states_[unit].gradient, wanted) == wanted) return;
  count(gradients_, (wanted ? 1 : -1) * units_[unit].whole * units_[unit].gradient_bytes);
}

void PlannedStep::begin_reduce(std::size_t unit) {
  note(StepEvent::Kind::reduce, unit);
  const PlannedUnit& planned = units_[unit];
  State& state = states_[unit];
  state.more_is_due = planned.compression || crosses_groups_;
  if (planned.compression) {
    if (!std::exchange(state.holds_before, true)) all_.add(planned.compression->state);
    return receive(unit, planned.compression->begun);
  }
  const bool is_whole = !planned.adds_sums && planned.owned == planned.whole;
  const bool in_place = is_whole || (!planned.converts && !state.begun);
  if (!in_place) receive(unit, planned.shard * planned.wire_bytes);
}

void PlannedStep::receive(std::size_t unit, std::int64_t bytes) {
  states_[unit].received += bytes;
  all_.add(bytes);
}

void PlannedStep::continue_reduce(std::size_t unit) {
  if (!std::exchange(states_[unit].more_is_due, false)) return;
  note(StepEvent::Kind::continue_reduce, unit);
  if (units_[unit].compression) receive(unit, units_[unit].compression->more);
}

void PlannedStep::finish_reduce(std::size_t unit) {
  State& state = states_[unit];
  state.begun = true;
  all_.add(-std::exchange(state.received, 0));
  hold_gradient(unit, false);
}

}  // namespace keel
