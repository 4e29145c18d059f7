#include "keel/dist/plan/step_walk.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace keel {
namespace {

using ModuleUnits = std::vector<std::size_t>;  // its units

// In the order of the first forward pass: the root begins before the units in it.
std::vector<ModuleUnits> forward_order(std::span<const FlatBuffer> layout) {
  std::vector<ModuleUnits> order;
  for (const bool root : {true, false})
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout[i].unit.empty() != root) continue;
      const auto same = [&](const ModuleUnits& other) { return layout[other.front()].unit == layout[i].unit; };
      const auto found = std::find_if(order.begin(), order.end(), same);
      if (found == order.end()) order.push_back({i});
      else found->push_back(i);
    }
  return order;
}

// Tells a UnitSchedule what a transformer does, and notes the answers. A unit that is used several times is used so
// often one after the other.
class Walker {
 public:
  Walker(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units, const ShardedOptions& options)
      : units_(units), order_(forward_order(layout)), roots_(layout.size()) {
    for (const ModuleUnits& module : order_) uses_.push_back(layout[module.front()].uses);
    std::vector<ScheduledUnit> scheduled(units.size());
    for (std::size_t module = 0; module < order_.size(); ++module)
      for (const std::size_t unit : order_[module]) {
        scheduled[unit] = scheduled_unit(layout[unit], units[unit], module);
        scheduled[unit].leaves = 1;  // its gradient is there at once
        roots_[unit] = scheduled[unit].root;
      }
    schedule_ = UnitSchedule(std::move(scheduled), options.sharding);
    forward();  // of the step before
    schedule_.given_back();
    events_.clear();
  }

  std::vector<StepEvent> walk(const ShardedOptions& options) {
    const bool reduces_each = options.sharding.reduces_each(options.micro_batches), answers = only_answers(units_);
    const bool is_alone =
        std::ranges::all_of(units_, [](const UnitSplit& unit) { return unit.reduction.stages.empty(); });
    const std::int64_t virtual_ranks = units_.front().virtual_ranks, all = virtual_ranks * options.micro_batches;
    for (micro_batch_ = 1; micro_batch_ <= all; ++micro_batch_) {
      const bool last_of_virtual_rank = micro_batch_ % options.micro_batches == 0;
      forward();
      if (answers) note(schedule_.given_back());
      else backward((!is_alone || virtual_ranks > 1) && (last_of_virtual_rank || reduces_each), micro_batch_ == all);
    }
    return std::move(events_);
  }

 private:
  using Kind = StepEvent::Kind;

  void forward() {
    for (std::size_t module = 0; module < order_.size(); ++module)
      for (std::int64_t use = 0; use < uses_[module]; ++use) {
        note(schedule_.forward_begins(module));
        for (const std::size_t unit : order_[module]) note(Kind::forward, unit);
        note(schedule_.forward_ends(module, /*backward_follows=*/true));
      }
  }
  void backward(bool reduces, bool last) {
    note(schedule_.pass_begins({UnitPass::Kind::backward, reduces, last}));
    for (std::size_t unit = 0; unit < units_.size();
         ++unit)  // the last layer may be the root's, and its first ends last
      if (roots_[unit] && units_[unit].trainable) note(Kind::backward_begins, unit);
    for (const bool root : {false, true})
      for (std::size_t module = order_.size(); module-- > 0;)
        if (roots_[order_[module].front()] == root) backward(order_[module], uses_[module]);
    note(schedule_.backward_ends());
  }
  void backward(const ModuleUnits& units, std::int64_t uses) {
    for (const std::size_t unit : units) note(schedule_.touched(unit));
    ModuleUnits trained;
    std::ranges::copy_if(units, std::back_inserter(trained), [&](std::size_t unit) { return units_[unit].trainable; });
    for (const std::size_t unit : trained) note(Kind::backward_begins, unit);
    for (; uses > 1; --uses)
      for (const std::size_t unit : units) note(Kind::backward, unit);
    for (const std::size_t unit : trained) note(schedule_.gradient_begins(unit));
    for (const std::size_t unit : units) note(Kind::backward, unit);
    for (const std::size_t unit : trained) note(schedule_.leaf_passed(unit));
  }

  void note(Kind kind, std::size_t unit) { events_.push_back({kind, unit, micro_batch_}); }
  void note(const UnitSchedule::Actions& actions) {
    for (const UnitAction& action : actions) events_.push_back({Kind::action, action.unit, micro_batch_, action.kind});
  }

  std::span<const UnitSplit> units_;
  std::vector<ModuleUnits> order_;
  std::vector<std::int64_t> uses_;  // by module
  std::vector<bool> roots_;
  UnitSchedule schedule_;
  std::vector<StepEvent> events_;
  std::int64_t micro_batch_ = 0;
};

}  // namespace

std::vector<StepEvent> walk_step(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units,
                                 const ShardedOptions& options) {
  if (units.empty()) return {};
  return Walker(layout, units, options).walk(options);
}

std::string last_module(std::span<const FlatBuffer> layout) {
  const std::vector<ModuleUnits> order = forward_order(layout);
  return order.empty() ? "" : layout[order.back().back()].unit;
}

bool only_answers(std::span<const UnitSplit> units) { return std::ranges::none_of(units, &UnitSplit::trainable); }

}  // namespace keel
