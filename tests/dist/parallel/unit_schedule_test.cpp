// The rules of the engine, fed with orders of events that no model has.

#include "tests/dist/parallel/unit_schedule_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Kind = UnitAction::Kind;

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

TEST(UnitSchedule, IsResizedBetweenPassesAloneAndKeepsItsStage) {
  const ShardingOptions options = {.stage = 1};
  Performer to({{.trainable = true, .leaves = 1, .gradient_bytes = 4}}, options);
  to.begin(true, true);
  EXPECT_THROW(to.schedule.resize(options), Error) << "nothing is sent yet";
  to.perform(to.schedule.leaf_passed(0));
  EXPECT_THROW(to.schedule.resize(options), Error);
  to.end();
  to.schedule.resize(options);
  EXPECT_THROW(to.schedule.resize({.stage = 2}), Error);
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
