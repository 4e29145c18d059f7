// The rules of the engine, fed with orders of events that no model has.

#include "keel/dist/parallel/unit_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace keel {
namespace {

using Kind = UnitAction::Kind;

// Does what a schedule says, and complains where that cannot be.
class Performer {
 public:
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

Drawn drawn_model(std::mt19937& random) {
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

void end_use(const Drawn& model, Performer& to, std::size_t module, bool backward_follows) {
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    if (model.units[unit].module == module) to.use(unit, -1);
  to.perform(to.schedule.forward_ends(module, backward_follows));
}

// A step: several passes, in which modules run in the usual order, in another one, twice, or not at all, and whose
// leaves come in any order, a unit at a time or mixed. A use may be inside of another one.
void run_step(const Drawn& model, Performer& to, std::mt19937& random) {
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

TEST(UnitSchedule, KeepsItsPromisesWhateverOrderEventsComeIn) {
  for (std::uint32_t seed = 0; seed < 3000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Drawn model = drawn_model(random);
    Performer to(model.units, model.options);
    for (int step = 0; step < 3; ++step) run_step(model, to, random);
  }
}

// Else ranks would wait for each other.
TEST(UnitSchedule, RanksThatAreToldTheSameAskForTheSame) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 first(seed), second(seed);
    const Drawn model = drawn_model(first), again = drawn_model(second);
    Performer a(model.units, model.options), b(again.units, again.options);
    run_step(model, a, first);
    run_step(again, b, second);
    EXPECT_EQ(a.all, b.all) << seed;
  }
}

// Sums are asked for in the order of the buckets, whichever rank has which gradient first.
TEST(UnitSchedule, TheOrderOfSumsDoesNotDependOnTheOrderOfGradients) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const Drawn model = drawn_model(random);
    std::vector<std::vector<std::size_t>> sums;
    for (int rank = 0; rank < 3; ++rank) {
      Performer to(model.units, model.options);
      to.begin(true, true);
      std::vector<std::size_t> leaves;
      for (std::size_t unit = 0; unit < model.units.size(); ++unit)
        if (model.units[unit].trainable) leaves.insert(leaves.end(), model.units[unit].leaves, unit);
      std::ranges::shuffle(leaves, random);
      for (const std::size_t unit : leaves) {
        to.read(unit);
        to.perform(to.schedule.leaf_passed(unit));
      }
      to.end();
      sums.emplace_back();
      for (const auto& [kind, unit] : to.all)
        if (kind == Kind::begin_reduce) sums.back().push_back(unit);
    }
    EXPECT_EQ(sums[0], sums[1]) << seed;
    EXPECT_EQ(sums[0], sums[2]) << seed;
  }
}

TEST(UnitSchedule, AForwardPassHasAsManyWholeUnitsAsArePrefetchedAndOne) {
  for (const int prefetch : {0, 1, 2, 5}) {
    std::vector<ScheduledUnit> units(12);
    for (std::size_t module = 0; module < units.size(); ++module)
      units[module] = {.module = module, .shards_parameters = true};
    Performer to(units, {.stage = 3, .prefetch = prefetch});
    for (int pass = 0; pass < 2; ++pass) {
      to.most_whole = 0;
      to.perform(to.schedule.pass_begins({UnitPass::Kind::forward}));
      for (std::size_t module = 0; module < units.size(); ++module) {
        to.perform(to.schedule.forward_begins(module));
        to.perform(to.schedule.forward_ends(module, true));
      }
      // The first pass does not know yet what comes next.
      EXPECT_EQ(to.most_whole, pass == 0 ? 1 : prefetch + 1);
    }
    to.begin(true, true);
    to.most_whole = 0;
    for (std::size_t unit = units.size(); unit-- > 0;) {
      to.read(unit);
      to.perform(to.schedule.leaf_passed(unit));
    }
    to.end();
    EXPECT_EQ(to.most_whole, prefetch + 1);
  }
}

// It is read one use before the window that is gathered, so that each is read ahead but for those that a pass begins
// with.
TEST(UnitSchedule, ReadsAUnitFromItsFileOneUseBeforeItIsGathered) {
  constexpr std::size_t kModules = 9;
  for (const std::size_t prefetch : {0, 1, 2, 5}) {
    std::vector<ScheduledUnit> units(kModules);
    for (std::size_t module = 0; module < kModules; ++module)
      units[module] = {.module = module, .shards_parameters = true, .fetches = true};
    Performer to(units, {.stage = 3, .prefetch = static_cast<int>(prefetch)});
    for (int pass = 0; pass < 2; ++pass) {
      to.all.clear();
      to.perform(to.schedule.pass_begins({UnitPass::Kind::forward}));
      for (std::size_t module = 0; module < kModules; ++module) {
        to.perform(to.schedule.forward_begins(module));
        to.perform(to.schedule.forward_ends(module, true));
      }
      const auto ahead = static_cast<std::ptrdiff_t>(pass == 0 ? 0 : kModules - 1 - prefetch);
      EXPECT_EQ(std::ranges::count(to.all, Kind::fetch, &UnitAction::kind), ahead) << prefetch;
      to.all.clear();
      to.begin(true, true);
      UnitSchedule::Actions first;
      for (std::size_t unit = kModules; unit-- > kModules - prefetch;) first.push_back({Kind::gather, unit});
      first.push_back({Kind::fetch, kModules - prefetch - 1});
      EXPECT_EQ(to.all, first) << prefetch;
      for (std::size_t unit = kModules; unit-- > 0;) {
        to.read(unit);
        to.perform(to.schedule.leaf_passed(unit));
      }
      to.end();
      EXPECT_EQ(std::ranges::count(to.all, Kind::fetch, &UnitAction::kind),
                static_cast<std::ptrdiff_t>(kModules - prefetch));
    }
  }
}

// Between passes, as whoever prints weights does.
TEST(UnitSchedule, KeepsAUnitThatSomebodyHasReadUntilItsUse) {
  std::vector<ScheduledUnit> units(4);
  for (std::size_t module = 0; module < units.size(); ++module)
    units[module] = {.module = module, .shards_parameters = true};
  Performer to(units, {.stage = 3, .prefetch = 0});
  for (int pass = 0; pass < 3; ++pass) {
    to.all.clear();
    if (pass != 1) to.perform(to.schedule.given_back());
    to.read(2);
    for (std::size_t module = 0; module < units.size(); ++module) {
      to.perform(to.schedule.forward_begins(module));
      to.perform(to.schedule.forward_ends(module, true));
    }
    EXPECT_EQ(std::ranges::count(to.all, UnitAction{Kind::gather, 2}), 1) << pass;
    to.begin(true, true);
    for (std::size_t unit = units.size(); unit-- > 0;) {
      to.read(unit);
      to.perform(to.schedule.leaf_passed(unit));
    }
    to.end();
  }
}

TEST(UnitSchedule, ABucketIsFullOnceItHasItsBytes) {
  using Buckets = std::vector<std::vector<std::size_t>>;
  const auto buckets = [](int stage, std::int64_t first, std::int64_t further) {
    std::vector<ScheduledUnit> units(7);
    for (std::size_t module = 0; module < units.size(); ++module)
      units[module] = {.module = module, .root = module == 2, .trainable = module != 1, .gradient_bytes = 10};
    return UnitSchedule(units, {.stage = stage, .first_bucket = first, .bucket = further}).buckets();
  };
  EXPECT_EQ(buckets(1, 10, 20), (Buckets{{6}, {5, 4}, {3, 0}, {2}})) << "the root's comes last, and frozen ones never";
  EXPECT_EQ(buckets(0, 11, 20), (Buckets{{6, 5}, {4, 3}, {0, 2}}));
  EXPECT_EQ(buckets(1, 10, 21), (Buckets{{6}, {5, 4, 3}, {0, 2}}));
  EXPECT_EQ(buckets(0, 1, 1), (Buckets{{6}, {5}, {4}, {3}, {0}, {2}}));
  EXPECT_EQ(buckets(2, 60, 60), buckets(0, 1, 1)) << "whole gradients go as soon as they can";
}

struct Uses {
  std::vector<ScheduledUnit> units;
  std::vector<std::size_t> order;  // modules, some of them several times

  Uses(std::mt19937& random, std::size_t modules, std::size_t length) {
    for (std::size_t module = 0; module < modules; ++module)
      units.push_back({.module = module, .shards_parameters = true, .leaves = 1 + random() % 2});
    draw(random, length);
  }
  void draw(std::mt19937& random, std::size_t length) {
    order.clear();
    while (order.size() < length) order.push_back(random() % units.size());
  }
  // `checked` after each event.
  template <class Checked>
  void run(Performer& to, const Checked& checked) const {
    to.perform(to.schedule.pass_begins({UnitPass::Kind::forward}));
    for (const std::size_t module : order) {
      to.perform(to.schedule.forward_begins(module));
      EXPECT_TRUE(to.is_readable(module));
      checked(1);
      to.perform(to.schedule.forward_ends(module, true));
      checked(0);
    }
  }
};

// A unit stays whole between two uses where the second is in the window of the first, and only there.
TEST(UnitSchedule, GathersAUnitAgainOnlyWhereItsNextUseIsFartherThanThePrefetchWindow) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const int prefetch = static_cast<int>(seed % 5);
    const Uses uses(random, 1 + random() % 5, 1 + random() % 20);
    std::ptrdiff_t expected = 0;
    for (std::size_t use = 0; use < uses.order.size(); ++use) {
      const std::size_t window = static_cast<std::size_t>(std::max(prefetch, 1));
      const auto here = uses.order.begin() + static_cast<std::ptrdiff_t>(use);
      const auto from = here - static_cast<std::ptrdiff_t>(std::min(use, window));
      if (std::find(from, here, uses.order[use]) == here) ++expected;
    }
    Performer to(uses.units, {.stage = 3, .prefetch = prefetch});
    for (int pass = 0; pass < 3; ++pass) {
      to.all.clear();
      uses.run(to, [](int) {});
      if (pass == 0) continue;  // which does not know yet what comes next
      EXPECT_EQ(std::ranges::count(to.all, Kind::gather, &UnitAction::kind), expected) << seed;
    }
  }
}

// Whatever way a pass takes beside the one that was expected.
TEST(UnitSchedule, HoldsNoMoreThanTheWindowInAForwardPassOfAnyOrder) {
  for (std::uint32_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int prefetch = static_cast<int>(seed % 5);
    Uses uses(random, 1 + random() % 8, 1 + random() % 20);
    Performer to(uses.units, {.stage = 3, .prefetch = prefetch});
    for (int pass = 0; pass < 4; ++pass) {
      uses.run(to, [&](int running) { EXPECT_LE(to.whole_now(), running + std::max(prefetch, 1 - running)); });
      uses.draw(random, 1 + random() % 20);
    }
  }
}

// Backward takes the uses in reverse; a gradient is there after the first of them in forward, and is summed once.
TEST(UnitSchedule, GathersAUnitOnceInABackwardPassAndSumsItOnceHoweverOftenItWasUsed) {
  for (std::uint32_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Uses uses(random, 1 + random() % 5, 1 + random() % 20);
    Performer to(uses.units, {.stage = 3, .prefetch = static_cast<int>(seed % 4)});
    for (int pass = 0; pass < 3; ++pass) {
      uses.run(to, [](int) {});
      to.all.clear();
      to.begin(true, true);
      for (std::size_t use = uses.order.size(); use-- > 0;) {
        const std::size_t unit = uses.order[use];
        to.read(unit);
        EXPECT_EQ(to.schedule.uses_of(unit), std::ranges::count(uses.order, unit));
        if (std::find(uses.order.begin(), uses.order.begin() + static_cast<std::ptrdiff_t>(use), unit) !=
            uses.order.begin() + static_cast<std::ptrdiff_t>(use))
          continue;
        for (std::size_t leaf = 0; leaf < uses.units[unit].leaves; ++leaf) to.perform(to.schedule.leaf_passed(unit));
      }
      to.end();
      for (std::size_t unit = 0; unit < uses.units.size(); ++unit)
        EXPECT_LE(std::ranges::count(to.all, UnitAction{Kind::gather, unit}), 1) << unit;
      uses.draw(random, 1 + random() % 20);
    }
  }
}

// Weights that another engine's pass reads come and go, and nothing is summed.
TEST(UnitSchedule, APassOfConstantsGathersAndReleasesAlone) {
  std::vector<ScheduledUnit> units(4);
  for (std::size_t module = 0; module < units.size(); ++module)
    units[module] = {.module = module, .shards_parameters = true, .leaves = 2};
  Performer to(units, {.stage = 3});
  for (std::size_t module = 0; module < units.size(); ++module) {
    to.perform(to.schedule.forward_begins(module));
    to.perform(to.schedule.forward_ends(module, true));
  }
  to.all.clear();
  to.perform(to.schedule.pass_begins({.kind = UnitPass::Kind::constants}));
  for (std::size_t unit = units.size(); unit-- > 0;)
    for (int leaf = 0; leaf < 2; ++leaf) {
      to.read(unit);
      to.perform(to.schedule.leaf_passed(unit));
    }
  to.perform(to.schedule.given_back());
  EXPECT_EQ(std::ranges::count(to.all, Kind::gather, &UnitAction::kind), 4);
  EXPECT_EQ(std::ranges::count(to.all, Kind::release, &UnitAction::kind), 4);
  EXPECT_EQ(std::ranges::count(to.all, Kind::begin_reduce, &UnitAction::kind), 0);
}

}  // namespace
}  // namespace keel
