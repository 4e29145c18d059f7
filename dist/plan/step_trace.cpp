#include "keel/dist/plan/step_trace.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "keel/dist/plan/sent_bytes.h"
#include "keel/dist/plan/step_walk.h"

namespace keel {
namespace {

using Kind = TraceNode::Kind;

std::int64_t matrix_numbers(const FlatBuffer& unit) {
  std::int64_t numbers = 0;
  for (const Segment& segment : unit.segments)
    if (segment.shape.size() >= 2) numbers += segment.numel;
  return numbers;
}

// Adds node after node, and remembers whose result each unit waits for.
class Tracer {
 public:
  Tracer(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units, std::int64_t tokens)
      : layout_(layout), units_(units), tokens_(tokens), gathered_(units.size()), is_first_(units.size(), true) {}

  void add(const StepEvent& event, bool sends) {
    micro_batch_ = event.micro_batch;
    switch (event.kind) {
      case StepEvent::Kind::forward: return compute("forward ", event.unit, 2);
      case StepEvent::Kind::backward_begins: return;
      case StepEvent::Kind::backward: return compute("backward ", event.unit, 4);
      case StepEvent::Kind::action:
        if (sends) perform(event.action, event.unit);
    }
  }
  // Of an optimizer that transforms matrices: before the update.
  void transform(const MatrixDeal& deal, const Optimizer& optimizer, int rank) {
    TraceNode prepare{.name = "prepare matrices"};
    needs_last_compute(prepare);
    for (const auto& [unit, reduction] : reductions_) prepare.needs.push_back(reduction.last);
    prepare.bytes = deal.owned(rank) * width_of(deal.dtype());
    std::size_t last = push_compute(std::move(prepare));
    const std::vector<PlannedCollective> collectives = matrix_collectives(deal, rank);
    const auto send = [&](const PlannedCollective& each) {
      last = push_collective({.name = "matrices", .needs = {last}, .collective = each});
    };
    const std::size_t before = deal.sharded() ? 1 : 0;  // of the collectives
    if (before > 0) send(collectives.front());
    last =
        push_compute({.name = "transform matrices", .needs = {last}, .operations = deal.operations(optimizer, rank)});
    if (collectives.size() > before) send(collectives.back());
    transformed_ = last;
  }
  void update(bool sends) {
    TraceNode node{.name = "update"};
    needs_last_compute(node);
    for (const auto& [unit, reduction] : reductions_) node.needs.push_back(reduction.last);
    if (transformed_) node.needs.push_back(*transformed_);
    for (const UnitSplit& unit : units_)
      if (unit.trainable) node.bytes += unit.owned.count() * width_of(unit.values);
    const std::size_t place = push_compute(std::move(node));
    for (std::size_t unit = 0; sends && unit < units_.size(); ++unit)
      if (units_[unit].shares_updates()) gather(unit, place);
  }
  std::vector<TraceNode> take() { return std::move(nodes_); }

 private:
  // The reduction of a unit's gradient: the collectives that are still to come, and the node before them.
  struct Reduction {
    std::deque<PlannedCollective> left;
    std::size_t last = 0;
    int added = 0;  // virtual ranks whose gradients this rank has added
  };

  void perform(UnitAction::Kind action, std::size_t unit) {
    using Action = UnitAction::Kind;
    switch (action) {
      case Action::gather: return units_[unit].shards_parameters ? gather(unit, {}) : void();
      case Action::begin_reduce: return begin_reduce(unit);
      case Action::continue_reduce: return reduce_once(unit, reductions_[unit]);
      case Action::finish_reduce:
        while (!reductions_[unit].left.empty()) reduce_once(unit, reductions_[unit]);
        return;
      case Action::gather_gradient: return gather_gradient(unit);
      case Action::fetch:
      case Action::wait_gathered:
      case Action::release:
      case Action::store_gradient:
      case Action::wait_gradient: return;
    }
  }

  void compute(const char* what, std::size_t unit, std::int64_t operations) {
    TraceNode node{.name = what + name_of_unit(layout_[unit]),
                   .operations = operations * tokens_ * matrix_numbers(layout_[unit]),
                   .bytes = units_[unit].whole * width_of(units_[unit].values)};
    needs_last_compute(node);
    if (gathered_[unit]) node.needs.push_back(*gathered_[unit]);
    push_compute(std::move(node));
  }
  void gather(std::size_t unit, std::optional<std::size_t> of) {
    TraceNode node{.name = "gather " + name_of_unit(layout_[unit]), .collective = next_gather(unit)};
    if (of) node.needs.push_back(*of);
    else if (last_compute_) node.follows.push_back(*last_compute_);
    gathered_[unit] = push_collective(std::move(node));
  }
  // From the subgroup's shards once they have the weights.
  PlannedCollective next_gather(std::size_t unit) {
    const bool first = is_first_[unit] && units_[unit].trainable;
    is_first_[unit] = false;
    return units_[unit].secondary > 0 && !first ? secondary_gather_of(units_[unit]) : gather_of(units_[unit]);
  }
  void begin_reduce(std::size_t unit) {
    Reduction& reduction = reductions_[unit];
    if (++reduction.added < units_[unit].virtual_ranks) return;
    for (const ReductionStage& stage : units_[unit].reduction.stages)
      if (stage.collective.count > 0) reduction.left.push_back(stage.collective);
    reduction.last = *last_compute_;
    reduce_once(unit, reduction);
  }
  void gather_gradient(std::size_t unit) {
    Reduction& reduction = reductions_[unit];
    reduction.left = {gradient_gather_of(units_[unit])};
    reduce_once(unit, reduction, "gather gradient ");
  }
  void reduce_once(std::size_t unit, Reduction& reduction, const char* what = "reduce ") {
    if (reduction.left.empty()) return;
    TraceNode node{
        .name = what + name_of_unit(layout_[unit]), .needs = {reduction.last}, .collective = reduction.left.front()};
    reduction.left.pop_front();
    reduction.last = push_collective(std::move(node));
  }

  void needs_last_compute(TraceNode& node) const {
    if (last_compute_) node.needs.push_back(*last_compute_);
  }
  std::size_t push(TraceNode node) {
    node.micro_batch = micro_batch_;
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  std::size_t push_compute(TraceNode node) { return *(last_compute_ = push(std::move(node))); }
  std::size_t push_collective(TraceNode node) {
    node.kind = Kind::collective;
    if (last_collective_) node.follows.push_back(*last_collective_);
    return *(last_collective_ = push(std::move(node)));
  }

  std::span<const FlatBuffer> layout_;
  std::span<const UnitSplit> units_;
  std::int64_t tokens_, micro_batch_ = 1;
  std::vector<TraceNode> nodes_ = {};
  std::vector<std::optional<std::size_t>> gathered_;  // by unit: where it was last
  std::vector<bool> is_first_;                        // by unit: not gathered since the update
  std::map<std::size_t, Reduction> reductions_ = {};  // by unit
  std::optional<std::size_t> last_compute_ = {}, last_collective_ = {}, transformed_ = {};
};

}  // namespace

std::vector<TraceNode> trace_step(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                  const ShardedOptions& options, int ranks, int rank, std::int64_t tokens,
                                  const CollectiveRoute& route) {
  const RankPlace place = check_planned(layout, optimizer, options, ranks, rank);
  const std::vector<UnitSplit> units = split_units(layout, options, place);
  Tracer tracer(layout, units, tokens);
  for (const StepEvent& event : walk_step(layout, units, options)) tracer.add(event, ranks > 1);
  for (const MatrixDeal& deal : plan_matrices(layout, optimizer, options, place.ranks))
    tracer.transform(deal, optimizer, place.rank);
  tracer.update(ranks > 1);
  std::vector<TraceNode> nodes = tracer.take();
  for (TraceNode& node : nodes)
    if (node.kind == Kind::collective)
      node.sent = SentBytes::on(node.collective.axis, route, place, rank).of(node.collective);
  return nodes;
}

}  // namespace keel
