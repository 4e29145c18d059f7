#include "keel/dist/parallel/planned_step.h"

#include <algorithm>
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
      sharding_(options.sharding),
      order_(forward_order(units)),
      states_(units.size()),
      shards_gradients_(kShardingStages[sharding_.stage].gradients),
      reduces_each_(sharding_.reduces_each(options.micro_batches)),
      crosses_groups_(groups > 1),
      answers_(only_answers(units)),
      under_way_(shards_gradients_ ? 1 : 4) {
  for (micro_batch_ = 1; micro_batch_ <= options.micro_batches; ++micro_batch_) {
    forward();
    if (answers_) release_all();
    else backward(micro_batch_ == options.micro_batches || reduces_each_);
  }
  micro_batch_ = options.micro_batches;
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit].gathers_sums()) note(StepEvent::Kind::gather_gradient, unit);
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

void PlannedStep::gather(std::size_t unit) {
  if (!units_[unit].shards_parameters || std::exchange(states_[unit].gathered, true)) return;
  count(gathered_, units_[unit].whole * units_[unit].value_bytes);
  note(StepEvent::Kind::gather, unit);
}

void PlannedStep::gather_module(std::size_t place) {
  for (const std::size_t unit : order_[place]) gather(unit);
}

// Frozen units behind the place have been used.
void PlannedStep::release_passed(std::size_t place) {
  for (std::size_t at = place + 1; at < order_.size(); ++at)
    for (const std::size_t unit : order_[at])
      if (!units_[unit].trainable) release(unit);
}

void PlannedStep::release(std::size_t unit) {
  if (!std::exchange(states_[unit].gathered, false)) return;
  count(gathered_, -units_[unit].whole * units_[unit].value_bytes);
}

void PlannedStep::hold_gradient(std::size_t unit, bool wanted) {
  if (!units_[unit].shards_gradients || std::exchange(states_[unit].gradient, wanted) == wanted) return;
  count(gradients_, (wanted ? 1 : -1) * units_[unit].whole * units_[unit].gradient_bytes);
}

void PlannedStep::forward() {
  const auto prefetch = static_cast<std::size_t>(sharding_.prefetch);
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const std::size_t last = std::min(place + prefetch, order_.size() - 1);
    for (std::size_t ahead = place; ahead <= last; ++ahead) gather_module(ahead);
    for (const std::size_t unit : order_[place]) note(StepEvent::Kind::forward, unit);
    const bool stays = !sharding_.reshard_after_forward || units_[order_[place].front()].root ||
                       (sharding_.keep_last_unit && place + 1 == order_.size());
    for (const std::size_t unit : order_[place])
      if (!stays) release(unit);
  }
}

void PlannedStep::backward(bool reduces) {
  const std::size_t count = order_.size(), prefetch = static_cast<std::size_t>(sharding_.prefetch);
  for (std::size_t i = 0; i < std::min(prefetch, count); ++i) gather_module(count - 1 - i);
  for (std::size_t unit = 0; unit < units_.size(); ++unit)  // the last layer may be the root's, and its first ends last
    if (units_[unit].root && units_[unit].trainable) hold_gradient(unit, true);
  for (const bool ends : {false, true}) {
    if (ends && sharding_.overlap) break;  // without overlap, reductions follow the whole pass
    for (const bool root : {false, true})
      for (std::size_t place = count; place-- > 0;) {
        if (units_[order_[place].front()].root != root) continue;
        if (!ends) compute_backward(place);
        for (const std::size_t unit : order_[place])
          if (units_[unit].trainable && reduces && (ends || sharding_.overlap)) fill_bucket(unit);
      }
  }
  send_bucket();
  while (!sent_.empty()) finish_oldest();
  buckets_ = 0;
  release_all();
}

void PlannedStep::release_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) release(unit);
}

void PlannedStep::compute_backward(std::size_t place) {
  const auto prefetch = static_cast<std::size_t>(sharding_.prefetch);
  const std::vector<std::size_t>& units = order_[place];
  const auto is_trained = [&](std::size_t unit) { return units_[unit].trainable; };
  gather_module(place);
  if (std::any_of(units.begin(), units.end(), is_trained)) {
    for (const std::size_t unit : units)
      if (is_trained(unit)) hold_gradient(unit, true);
    if (!units_[units.front()].root) release_passed(place);
    if (place >= prefetch) gather_module(place - prefetch);
  }
  for (const std::size_t unit : units) note(StepEvent::Kind::backward, unit);
  for (const std::size_t unit : units)
    if (is_trained(unit)) release(unit);
}

// Where gradients are sharded each unit is a bucket.
void PlannedStep::fill_bucket(std::size_t unit) {
  bucket_.push_back(unit);
  bucket_bytes_ += units_[unit].whole * units_[unit].gradient_bytes;
  const std::int64_t limit = buckets_ == 0 ? sharding_.first_bucket : sharding_.bucket;
  if (shards_gradients_ || bucket_bytes_ >= limit) send_bucket();
}

void PlannedStep::send_bucket() {
  for (const std::size_t unit : std::exchange(bucket_, {})) reduce(unit);
  bucket_bytes_ = 0;
  ++buckets_;
}

void PlannedStep::reduce(std::size_t unit) {
  while (sent_.size() >= under_way_) finish_oldest();
  if (!sent_.empty()) proceed(sent_.back());
  note(StepEvent::Kind::reduce, unit);
  sent_.push_back(unit);
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

void PlannedStep::proceed(std::size_t unit) {
  if (!std::exchange(states_[unit].more_is_due, false)) return;
  note(StepEvent::Kind::continue_reduce, unit);
  if (units_[unit].compression) receive(unit, units_[unit].compression->more);
}

void PlannedStep::finish_oldest() {
  const std::size_t unit = sent_.front();
  State& state = states_[unit];
  proceed(unit);
  state.begun = true;
  all_.add(-std::exchange(state.received, 0));
  hold_gradient(unit, false);
  sent_.pop_front();
}

}  // namespace keel
