#include "keel/dist/parallel/plan.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "keel/dist/comm/algorithms.h"

namespace keel {
namespace {

// One unit on one rank, in elements and bytes.
struct PlannedUnit {
  bool root, trainable;
  bool shards_parameters, shards_gradients;
  std::int64_t whole, shard, owned;                      // elements
  std::int64_t value_bytes, gradient_bytes, wire_bytes;  // of an element
  bool converts;                                         // gradients to the wire's dtype
  std::optional<CompressionPlan> compression = {};       // where there is error feedback
};

std::vector<PlannedUnit> plan_units(std::span<const FlatBuffer> layout, const ShardedOptions& options, int ranks,
                                    int rank) {
  const ShardingStage& stage = kShardingStages[options.sharding.stage];
  const bool several = ranks > 1;
  const DType wire = options.wire_dtype();
  std::vector<PlannedUnit> units;
  for (const FlatBuffer& buffer : layout) {
    const DType gradient =
        options.micro_batches > 1 || buffer.tied ? options.policy.gradient : options.policy.parameter;
    const std::int64_t shard = part({0, buffer.padded}, ranks, rank).count();
    units.push_back(
        {.root = buffer.unit.empty(),
         .trainable = buffer.trainable,
         .shards_parameters = several && stage.parameters && buffer.padded >= options.sharding.persistence_threshold,
         .shards_gradients = several && stage.gradients,
         .whole = buffer.padded,
         .shard = shard,
         .owned = several && stage.optimizer ? shard : buffer.padded,
         .value_bytes = static_cast<std::int64_t>(size_of(options.policy.parameter)),
         .gradient_bytes = static_cast<std::int64_t>(size_of(gradient)),
         .wire_bytes = static_cast<std::int64_t>(size_of(wire)),
         .converts = gradient != wire});
    if (PlannedUnit& unit = units.back(); several && unit.trainable && options.compression.kind().feedback)
      unit.compression = plan_compression(buffer, options.compression, ranks, unit.owned == unit.whole, wire);
  }
  return units;
}

// The order of the first forward pass: the root begins before the units in it.
std::vector<std::size_t> forward_order(const std::vector<PlannedUnit>& units) {
  std::vector<std::size_t> order;
  for (const bool root : {true, false})
    for (std::size_t i = 0; i < units.size(); ++i)
      if (units[i].root == root) order.push_back(i);
  return order;
}

// Follows Sharded and ShardUnit through a step, counting what is whole for a while.
class StepMemory {
 public:
  StepMemory(const std::vector<PlannedUnit>& units, const ShardedOptions& options)
      : units_(units), sharding_(options.sharding), order_(forward_order(units)), states_(units.size()) {
    const bool shards_gradients = kShardingStages[sharding_.stage].gradients;
    under_way_ = shards_gradients ? 1 : 4;
    for (std::int64_t micro = 1; micro <= options.micro_batches; ++micro) {
      forward();
      backward(micro == options.micro_batches || (shards_gradients && sharding_.reduce_each_backward));
    }
  }

  void report(MemoryPlan& memory) const {
    memory.gathered = gathered_.peak;
    memory.whole_gradients = gradients_.peak;
    memory.buckets = all_.peak;
  }

 private:
  struct State {
    bool gathered = false, gradient = false, begun = false;
    bool more_is_due = false;   // a second collective
    bool holds_before = false;  // what compression had left before this step
    std::int64_t received = 0;  // bytes of its own for a reduction
  };
  struct Count {
    std::int64_t now = 0, peak = 0;
    void add(std::int64_t bytes) { peak = std::max(peak, now += bytes); }
  };

  void count(Count& kind, std::int64_t bytes) {
    kind.add(bytes);
    all_.add(bytes);
  }
  void gather(std::size_t i, bool wanted = true) {
    if (!units_[i].shards_parameters || states_[i].gathered == wanted) return;
    states_[i].gathered = wanted;
    count(gathered_, (wanted ? 1 : -1) * units_[i].whole * units_[i].value_bytes);
  }
  void release(std::size_t i) { gather(i, false); }
  void hold_gradient(std::size_t i, bool wanted) {
    if (!units_[i].shards_gradients || states_[i].gradient == wanted) return;
    states_[i].gradient = wanted;
    count(gradients_, (wanted ? 1 : -1) * units_[i].whole * units_[i].gradient_bytes);
  }

  void forward() {
    const auto prefetch = static_cast<std::size_t>(sharding_.prefetch);
    for (std::size_t place = 0; place < order_.size(); ++place) {
      const std::size_t last = std::min(place + prefetch, order_.size() - 1);
      for (std::size_t ahead = place; ahead <= last; ++ahead) gather(order_[ahead]);
      const bool stays = !sharding_.reshard_after_forward || units_[order_[place]].root ||
                         (sharding_.keep_last_unit && place + 1 == order_.size());
      if (!stays) release(order_[place]);
    }
  }

  void backward(bool reduces) {
    const std::size_t count = order_.size(), prefetch = static_cast<std::size_t>(sharding_.prefetch);
    for (std::size_t i = 0; i < std::min(prefetch, count); ++i) gather(order_[count - 1 - i]);
    for (const std::size_t i : order_)  // the last layer may be the root's, whose first is the last to finish
      if (units_[i].root && units_[i].trainable) hold_gradient(i, true);
    for (const bool root : {false, true})
      for (std::size_t place = count; place-- > 0;) {
        const std::size_t i = order_[place];
        if (units_[i].root != root) continue;
        gather(i);
        if (!units_[i].trainable) continue;
        hold_gradient(i, true);
        if (place >= prefetch) gather(order_[place - prefetch]);
        release(i);
        if (reduces && sharding_.overlap) reduce(i);
      }
    if (reduces && !sharding_.overlap)
      for (const bool root : {false, true})
        for (std::size_t place = count; place-- > 0;)
          if (units_[order_[place]].root == root && units_[order_[place]].trainable) reduce(order_[place]);
    while (!sent_.empty()) finish_oldest();
    for (std::size_t i = 0; i < units_.size(); ++i) release(i);
  }

  void reduce(std::size_t i) {
    while (sent_.size() >= under_way_) finish_oldest();
    if (!sent_.empty()) proceed(sent_.back());
    const PlannedUnit& unit = units_[i];
    if (unit.compression) {
      if (!std::exchange(states_[i].holds_before, true)) all_.add(unit.compression->state);
      receive(i, unit.compression->begun);
      states_[i].more_is_due = true;
      sent_.push_back(i);
      return;
    }
    const bool in_place = unit.owned == unit.whole || (!unit.converts && (!unit.shards_gradients || !states_[i].begun));
    if (!in_place) receive(i, unit.shard * unit.wire_bytes);
    sent_.push_back(i);
  }
  void receive(std::size_t i, std::int64_t bytes) {
    states_[i].received += bytes;
    all_.add(bytes);
  }
  void proceed(std::size_t i) {
    if (std::exchange(states_[i].more_is_due, false)) receive(i, units_[i].compression->more);
  }
  void finish_oldest() {
    State& state = states_[sent_.front()];
    proceed(sent_.front());
    state.begun = true;
    all_.add(-std::exchange(state.received, 0));
    hold_gradient(sent_.front(), false);
    sent_.pop_front();
  }

  const std::vector<PlannedUnit>& units_;
  const ShardingOptions& sharding_;
  std::vector<std::size_t> order_;
  std::vector<State> states_;
  std::size_t under_way_;
  std::deque<std::size_t> sent_ = {};  // units whose sums are under way
  Count gathered_ = {}, gradients_ = {}, all_ = {};
};

// One rank of a group, and the elements that it sends for a collective of `count` of them.
class Sender {
 public:
  Sender(std::string_view algorithm, int ranks, int rank)
      : algorithm_(find_algorithm(algorithm)), shape_{.rank = rank, .size = ranks} {}

  std::int64_t bytes(const PlannedCollective& c) const { return c.times * c.width * elements(c.kind, c.count); }
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

// What becomes of a unit's gradient, each time that it is summed.
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
  add(unit.owned == unit.whole ? Kind::all_reduce : Kind::reduce_scatter, unit.whole, unit.wire_bytes);
  if (groups > 1) add(Kind::all_reduce, unit.owned, unit.wire_bytes, true);
  return all;
}

// Numbers that an optimizer measures in a step.
std::int64_t measured_sums(std::span<const FlatBuffer> layout, const Optimizer& optimizer) {
  std::int64_t count = 0;
  for (const FlatBuffer& buffer : layout)
    for (const Segment& segment : buffer.segments)
      for (int pass = 0; buffer.trainable && pass < optimizer.passes(); ++pass)
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
    for (const StateKind& kind : optimizer.parameter_state(segment.shape, groups(segment.name, segment.shape)))
      bytes += kind.bytes(end - begin, wide);
  }
  return bytes;
}

}  // namespace

std::int64_t control_bytes(int ranks) { return ranks * static_cast<std::int64_t>(sizeof(StepPartial)); }

int shard_ranks(const ShardingOptions& options, int ranks) {
  return options.group == 0 || !kShardingStages[options.stage].optimizer ? ranks : options.group;
}

RankPlan plan_rank(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank, std::string_view algorithm) {
  KEEL_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "there is no rank ", rank, " of ", ranks);
  KEEL_CHECK(options.sharding.stage >= 0 && options.sharding.stage <= 3, "the stages of sharding are 0 to 3, got ",
             options.sharding.stage);
  PrecisionPolicy policy = options.policy;
  policy.keeps_master = optimizer.needs_master();
  const auto wide = static_cast<std::int64_t>(policy.parameter == DType::f64 ? 8 : 4);
  const std::int64_t state_bytes =
      wide * static_cast<std::int64_t>(optimizer.state_names().size()) + (policy.master() ? 4 : 0);
  const ShardingOptions& sharding = options.sharding;
  check_gradients(layout, optimizer);
  for (const FlatBuffer& buffer : layout)
    KEEL_CHECK(!buffer.sparse, "memory and bytes of ", buffer.segments.front().name,
               ", whose gradient is kept as rows, follow from what each batch looks up; there is no plan of them");
  const std::int64_t reductions =
      kShardingStages[sharding.stage].gradients && sharding.reduce_each_backward ? options.micro_batches : 1;
  const int group = shard_ranks(sharding, ranks), groups = ranks / group;
  KEEL_CHECK(ranks % group == 0, "groups of ", group, " ranks do not divide the ", ranks, " that there are");
  const std::vector<PlannedUnit> units = plan_units(layout, options, group, rank % group);
  const std::vector<std::size_t> order = forward_order(units);

  RankPlan plan;
  std::int64_t arriving = 0;  // weights that come back from the processor, the most of a unit
  for (std::size_t i = 0; i < units.size(); ++i) {
    const PlannedUnit& unit = units[i];
    plan.memory.parameter += (unit.shards_parameters ? unit.shard : unit.whole) * unit.value_bytes;
    const bool stays = !sharding.reshard_after_forward || unit.root || (sharding.keep_last_unit && i == order.back());
    if (unit.shards_parameters || (unit.trainable && unit.owned != unit.whole))
      plan.collectives.push_back({.kind = CollectiveKind::all_gather,
                                  .count = unit.whole,
                                  .width = unit.value_bytes,
                                  .times = unit.shards_parameters ? options.micro_batches * (stays ? 1 : 2) : 1,
                                  .of_parameters = true});
    if (!unit.trainable) continue;
    plan.memory.gradient += (unit.shards_gradients ? unit.shard : unit.whole) * unit.gradient_bytes;
    if (unit.compression) plan.memory.undelivered += unit.compression->state;
    const Span owned = unit.owned == unit.whole ? Span{0, unit.whole} : part({0, unit.whole}, group, rank % group);
    const std::int64_t state =
        unit.owned * state_bytes + kept_of_parameters(layout[i], optimizer, options.groups, owned, wide);
    const std::int64_t values = unit.owned * unit.value_bytes;
    if (sharding.offload_optimizer) {
      plan.memory.host += state + values;
      plan.traffic.offload += unit.owned * unit.gradient_bytes + values;
      arriving = std::max(arriving, values);
    } else {
      plan.memory.optimizer += state;
    }
    for (const PlannedCollective& each : reductions_of(unit, reductions, groups)) plan.collectives.push_back(each);
  }
  if (ranks == 1) plan.collectives.clear();
  const Sender inside(algorithm, group, rank % group), across(algorithm, groups, rank / group);
  for (const PlannedCollective& each : plan.collectives)
    (each.of_parameters ? plan.traffic.gathers : plan.traffic.reductions) +=
        (each.across_groups ? across : inside).bytes(each);
  plan.traffic.control = Sender(algorithm, ranks, rank).elements(CollectiveKind::all_gather, control_bytes(ranks));
  if (group > 1)
    plan.traffic.control += Sender(algorithm, ranks, rank)
                                .elements(CollectiveKind::all_gather, ranks * 8 * measured_sums(layout, optimizer));
  if (optimizer.needs_closure())  // the losses of all ranks
    plan.traffic.control += Sender(algorithm, ranks, rank).elements(CollectiveKind::all_gather, ranks * 8);
  plan.memory.gradient += plan.memory.undelivered;
  if (ranks > 1) StepMemory(units, options).report(plan.memory);
  if (arriving > 0) plan.memory.buckets = std::max(plan.memory.buckets, arriving + plan.memory.undelivered);
  return plan;
}

}  // namespace keel
