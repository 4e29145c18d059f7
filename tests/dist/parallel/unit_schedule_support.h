#pragma once
// Drawn models and orders of events for a schedule, and one who does what it says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "keel/dist/parallel/unit_schedule.h"

namespace keel::testing {

// Does what a schedule says, and complains where that cannot be.
class Performer {
 public:
  using Kind = UnitAction::Kind;

  explicit Performer(std::vector<ScheduledUnit> units, const ShardingOptions& options)
      : units_(std::move(units)), schedule(units_, options), state_(units_.size()) {}

  void perform(const UnitSchedule::Actions& actions) {
    for (const auto& [kind, unit] : actions) {
      all.push_back({kind, unit});
      State& state = state_[unit];
      switch (kind) {
        case Kind::fetch:
          EXPECT_TRUE(units_[unit].fetches && !state.whole) << unit;
          EXPECT_FALSE(std::exchange(state.fetched, true)) << "read ahead twice: " << unit;
          break;
        case Kind::gather:
          EXPECT_TRUE(units_[unit].shards_parameters) << unit;
          state.fetched = false;
          EXPECT_FALSE(std::exchange(state.whole, true)) << "gathered twice: " << unit;
          state.arrived = false;
          break;
        case Kind::wait_gathered: state.arrived = true; break;
        case Kind::release:
          EXPECT_TRUE(state.whole || state.fetched) << "released twice: " << unit;
          state.whole = state.fetched = false;
          EXPECT_EQ(state.in_use, 0) << "released in use: " << unit;
          break;
        case Kind::store_gradient:
          EXPECT_TRUE(units_[unit].trainable && units_[unit].stores_gradient) << unit;
          EXPECT_EQ(state.reduced, 0) << "the sums are what is kept: " << unit;
          break;
        case Kind::begin_reduce:
          EXPECT_TRUE(units_[unit].trainable && reduces) << unit;
          EXPECT_EQ(state.reduced++, 0) << "reduced twice: " << unit;
          under_way.push_back(unit);
          EXPECT_LE(under_way.size(), schedule.most_under_way());
          break;
        case Kind::continue_reduce:
          EXPECT_EQ(state.continued++, 0) << unit;
          EXPECT_TRUE(std::ranges::count(under_way, unit) == 1) << unit;
          break;
        case Kind::finish_reduce:
          EXPECT_EQ(state.continued, 1) << unit;
          ASSERT_FALSE(under_way.empty());
          EXPECT_EQ(under_way.front(), unit) << "sums end in the order in which they begin";
          under_way.erase(under_way.begin());
          break;
        case Kind::gather_gradient:
        case Kind::wait_gradient: EXPECT_TRUE(last && units_[unit].gathers_sums && under_way.empty()) << unit; break;
      }
      most_whole = std::max(most_whole, whole_now());
    }
  }
  bool is_readable(std::size_t unit) const {
    return !units_[unit].shards_parameters || (state_[unit].whole && state_[unit].arrived);
  }
  // So many more uses of the unit's weights are under way.
  void use(std::size_t unit, int change) { state_[unit].in_use += change; }
  // As the touch of memory that is not there does.
  void read(std::size_t unit) {
    if (!is_readable(unit)) perform(schedule.touched(unit));
    EXPECT_TRUE(is_readable(unit)) << unit;
  }
  std::ptrdiff_t whole_now() const { return std::ranges::count_if(state_, &State::whole); }
  void begin(bool reduces_now, bool is_last) {
    reduces = reduces_now;
    last = is_last;
    for (State& state : state_) state.reduced = state.continued = 0;
    perform(schedule.pass_begins({UnitPass::Kind::backward, reduces, last}));
  }
  void end() {
    perform(schedule.backward_ends());
    EXPECT_TRUE(under_way.empty());
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      EXPECT_EQ(state_[unit].reduced, reduces && units_[unit].trainable ? 1 : 0) << unit;
      EXPECT_FALSE(state_[unit].whole || state_[unit].fetched) << "in memory after the step: " << unit;
    }
  }

 private:
  std::vector<ScheduledUnit> units_;

 public:
  UnitSchedule schedule;
  UnitSchedule::Actions all;
  std::vector<std::size_t> under_way;
  std::ptrdiff_t most_whole = 0;
  bool reduces = false, last = false;

 private:
  struct State {
    bool whole = false, fetched = false, arrived = false;
    int in_use = 0, reduced = 0, continued = 0;
  };
  std::vector<State> state_;
};

struct Drawn {
  std::vector<ScheduledUnit> units;
  ShardingOptions options;
  std::size_t modules = 0;
};

inline Drawn drawn_model(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Drawn drawn;
  drawn.options.stage = static_cast<int>(below(4));
  drawn.options.prefetch = static_cast<int>(below(4));
  drawn.options.overlap = below(4) != 0;
  drawn.options.reshard_after_forward = below(3) != 0;
  drawn.options.keep_last_unit = below(2) == 0;
  drawn.options.first_bucket = static_cast<std::int64_t>(below(60));
  drawn.options.bucket = static_cast<std::int64_t>(below(200));
  drawn.modules = 1 + below(7);
  for (std::size_t module = 0; module < drawn.modules; ++module) {
    const bool has_frozen = below(4) == 0, has_trained = !has_frozen || below(2) == 0;
    for (const bool trainable : {true, false}) {
      if (!(trainable ? has_trained : has_frozen)) continue;
      drawn.units.push_back({.module = module,
                             .root = module == 0 && drawn.options.bucket % 2 == 0,
                             .trainable = trainable,
                             .shards_parameters = drawn.options.stage == 3 && below(5) != 0,
                             .stores_gradient = trainable && below(2) == 0,
                             .gathers_sums = trainable && drawn.options.stage == 0,
                             .leaves = 1 + below(3),
                             .gradient_bytes = static_cast<std::int64_t>(below(100))});
      drawn.units.back().fetches = drawn.units.back().shards_parameters && below(2) == 0;
    }
  }
  return drawn;
}

inline void end_use(const Drawn& model, Performer& to, std::size_t module, bool backward_follows) {
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    if (model.units[unit].module == module) to.use(unit, -1);
  to.perform(to.schedule.forward_ends(module, backward_follows));
}

// A step: several passes, in which modules run in the usual order, in another one, twice, or not at all, and whose
// leaves come in any order, a unit at a time or mixed. A use may be inside of another one.
inline void run_step(const Drawn& model, Performer& to, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t passes = 1 + below(3);
  const bool each = below(2) == 0;
  for (std::size_t pass = 1; pass <= passes; ++pass) {
    std::vector<std::size_t> order;
    for (std::size_t module = 0; module < model.modules; ++module)
      for (std::size_t times = below(8) == 0 ? below(3) : 1; times > 0; --times) order.push_back(module);
    if (below(4) == 0) std::ranges::shuffle(order, random);
    if (below(2) == 0) to.perform(to.schedule.pass_begins({UnitPass::Kind::forward}));
    std::vector<std::size_t> open;  // uses that others are inside of
    for (const std::size_t module : order) {
      to.perform(to.schedule.forward_begins(module));
      open.push_back(module);
      for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
        if (model.units[unit].module != module) continue;
        EXPECT_TRUE(to.is_readable(unit)) << "forward of " << module;
        to.use(unit, 1);
      }
      if (below(5) == 0) continue;
      for (; !open.empty(); open.pop_back()) end_use(model, to, open.back(), below(5) != 0);
    }
    for (; !open.empty(); open.pop_back()) end_use(model, to, open.back(), true);
    if (below(6) == 0) to.perform(to.schedule.given_back());
    to.begin(each || pass == passes, pass == passes);
    std::vector<std::size_t> leaves;
    for (std::size_t unit = model.units.size(); unit-- > 0;)
      if (model.units[unit].trainable)
        for (std::size_t leaf = 0; leaf < model.units[unit].leaves; ++leaf) leaves.push_back(unit);
    if (below(2) == 0) std::ranges::shuffle(leaves, random);
    const bool all_used = below(4) != 0;
    for (const std::size_t unit : leaves) {
      if (!all_used && below(4) == 0) continue;
      to.read(unit);
      to.perform(to.schedule.leaf_passed(unit));
    }
    to.end();
  }
}

}  // namespace keel::testing
