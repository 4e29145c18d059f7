#pragma once
// A strategy of one's own: what groups of ranks that train together tell each other, and when.
//
// Ranks of a group (ShardingOptions::group) have one copy of the model and sum their gradients in every step, in every
// sharding stage: that is the inner axis. The outer axis goes through ranks with the same shard in the other groups.
// What travels there is the strategy's: gradients of each step, differences of weights after several, or anything else.
// Every call below happens on every rank, in the same order.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/collective_route.h"
#include "keel/dist/comm/communicator.h"
#include "keel/optim/optimizer.h"

namespace keel {

// A trainable unit on this rank: dense tensors of the elements that it updates, which the other ranks of its axis have,
// too.
struct StrategyUnit {
  std::string_view name;  // the path of its module
  Tensor weights;         // as the optimizer has them, in fp32 where there are masters; where the optimizer works
  Tensor gradient;        // the sum over the group, times the loss scale
  // The tensors have one shard of the unit, or so many equal ones, one behind the other. What a strategy does to each
  // by itself gives the same bits in all sharding stages. Between parameters and behind the last one there are zeros:
  // what a strategy writes there, to these tensors or to its state, is cleared behind before_step() and after_step().
  int shards = 1;
};

// Elements of such a unit.
struct StrategyNumbers {
  std::int64_t count = 0;
  int shards = 1;
};

struct StrategySite {
  std::vector<StrategyUnit> units;
  Context context;      // of tensors that travel
  Communicator& outer;  // one rank of each group
};

// A tensor of a unit that checkpoints keep: as many elements as the weights.
struct StrategyState {
  std::string_view name;
  Tensor values;
  bool of_group = false;  // each group has other numbers; otherwise all have the same
  bool travels = false;   // it is under way, and nobody touches it before settle()
};

// Where a rank stands among groups, and by what they exchange.
struct StrategyPlace {
  int groups = 1, group = 0;
  CollectiveRoute route = {};
  bool weights_on_host = false;  // StrategyUnit::weights, for a device
};

// What a strategy needs, on one rank.
struct StrategyCost {
  std::int64_t state = 0;  // bytes that are kept from step to step
  std::int64_t sent = 0;   // bytes that are sent in `every` steps
  std::int64_t every = 1;
  // Bytes of Purpose::bucket: the most at a time while it works, and the part that is there until the step has ended.
  std::int64_t at_once = 0, held = 0;
  // Where weights are on the host: what is kept there, and the most of Purpose::bucket. Not in `state` and `at_once`.
  std::int64_t host_state = 0, host_at_once = 0;
  // Tensors in fp32 that state() has of each unit, and those of them that each group has of its own.
  int saved = 0, saved_of_group = 0;
};

class CommunicationStrategy {
 public:
  virtual ~CommunicationStrategy() = default;

  // Name and options. Ranks that differ in it do not begin.
  virtual std::string describe() const = 0;
  // Whether gradients are summed over the groups, too, in each step, as without a strategy.
  virtual bool sums_gradients(const OptimizerRequirements& /*optimizer*/) const { return false; }

  // Whether all that it asks of the outer axis is in attempts (Communicator::attempt()), so that groups go on with it
  // when others are lost.
  virtual bool survives() const { return false; }

  // The weights are initial ones, equal in all groups. Whatever the site names outlives the strategy.
  virtual void begin(const StrategySite& site) = 0;
  // The gradient of this unit is complete; others may not be.
  virtual void after_backward(std::size_t /*unit*/) {}
  // All gradients are complete. What they are afterwards decides the step, and is what the optimizer reads. Asking for
  // the loss scale waits for the device where there is one.
  virtual void before_step(const std::function<double()>& /*loss_scale*/) {}
  // The optimizer has updated, or the group has skipped the step, as taken() tells; that waits for the device. True
  // where weights were written here.
  virtual bool after_step(const std::function<bool()>& /*taken*/) { return false; }

  // Waits for what is under way, so that state() has all of it. Every rank calls it, after steps.
  virtual void settle() {}
  // Views that a checkpoint keeps of a unit, and that a run which goes on writes to; after that, resumed(). It asks for
  // no collective, since one rank alone of a group may save.
  virtual std::vector<StrategyState> state(std::size_t /*unit*/) { return {}; }
  // Weights were read from somewhere: they are where all groups begin, and nothing is left of steps before.
  virtual void restart() {}
  // Steps so far, taken or not.
  virtual std::int64_t steps() const { return 0; }
  virtual void resumed(std::int64_t /*steps*/) {}

  // `units`: what this rank has of each.
  virtual StrategyCost cost(std::span<const StrategyNumbers> units, const StrategyPlace& place) const = 0;
};

// Of a strategy that all-reduces every number of its units in fp32 once in `every` steps, and keeps so many fp32
// tensors of them beside the weights, which state() has.
StrategyCost cost_of_sums(std::span<const StrategyNumbers> units, const StrategyPlace& place, std::int64_t every,
                          int kept);

// A copy in fp32 that a strategy keeps from step to step: plans and counts of memory call it optimizer state.
Tensor kept_copy(const Tensor& x);
// One in fp32, times a factor, that is there for a while.
Tensor scaled_copy(const Tensor& x, double factor);

// Makes one on every rank.
using StrategyMaker = std::function<std::unique_ptr<CommunicationStrategy>()>;

}  // namespace keel
