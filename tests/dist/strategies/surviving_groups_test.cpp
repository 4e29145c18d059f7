// Outer steps of groups of which some are lost: what the others have afterwards. Among threads, and among processes
// that are killed.

#include "keel/dist/strategies/surviving_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/deal_by_cost.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/comm/altered_communicator.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr OuterStepOptions kLocalSgd = {.every = 3, .repeats = true};
constexpr OuterStepOptions kDiLoCo = {.every = 3, .rate = 0.7, .momentum = 0.9, .nesterov = true, .repeats = true};
constexpr OuterStepOptions kStreaming = {.every = 4,
                                         .rate = 0.7,
                                         .momentum = 0.9,
                                         .nesterov = true,
                                         .fragments = 2,
                                         .delay = 2,
                                         .blend = 0.25,
                                         .repeats = true};

CommunicatorOptions impatient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

// When a group goes: before a collective of this number that it asks for in training, or before a step.
struct Death {
  int collective = -1;
  int step = -1;
};
using Deaths = std::map<int, Death>;  // by group

const std::vector<std::int64_t> kUnits = {5, 40, 17};
constexpr int kSteps = 11;

// How far a group's own training takes a weight in a step.
float move_of(int group, int step, std::size_t unit, std::size_t at) {
  return 0.01F * static_cast<float>((group + 2) * static_cast<int>(at % 7) - step + 3 * static_cast<int>(unit));
}

// The same in plain loops, by one who sees all groups.
class Reference {
 public:
  Reference(const OuterStepOptions& options, int groups)
      : options_(options), groups_(static_cast<std::size_t>(groups)) {
    fragments_ = deal_by_cost(kUnits, static_cast<int>(options.fragments));
    for (const std::int64_t count : kUnits) {
      const std::vector<float> numbers(static_cast<std::size_t>(count), 1.0F);
      anchor_.push_back(numbers);
      momentum_.emplace_back(numbers.size());
      for (Group& each : groups_) {
        each.weights.push_back(numbers);
        each.part.emplace_back(numbers.size());
      }
    }
  }

  void train(const Deaths& deaths) {
    for (int step = 1; step <= kSteps; ++step) {
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        Group& group = groups_[g];
        const auto death = deaths.find(static_cast<int>(g));
        if (death != deaths.end() && death->second.step == step) group.is_there = false;
        for (std::size_t u = 0; u < kUnits.size(); ++u)
          for (std::size_t i = 0; i < group.weights[u].size(); ++i)
            group.weights[u][i] += move_of(static_cast<int>(g), step, u, i);
        for (std::size_t u = 0; u < kUnits.size(); ++u)
          if (is_due(u, step)) send(g, u, deaths);
        bool is_any_due = false;
        for (std::size_t u = 0; u < kUnits.size(); ++u)
          is_any_due = is_any_due || is_due(u, step - static_cast<int>(options_.delay));
        if (is_any_due) ask(g, deaths);
      }
      for (std::size_t u = 0; u < kUnits.size(); ++u)
        if (is_due(u, step - static_cast<int>(options_.delay))) use(u);
    }
  }

  std::vector<double> weights(int group) const {
    std::vector<double> all;
    for (const std::vector<float>& unit : groups_[static_cast<std::size_t>(group)].weights)
      all.insert(all.end(), unit.begin(), unit.end());
    return all;
  }
  bool is_there(int group) const { return groups_[static_cast<std::size_t>(group)].is_there; }

 private:
  struct Group {
    std::vector<std::vector<float>> weights, part;  // by unit
    int asked = 0;                                  // collectives
    bool is_there = true;
  };

  bool is_due(std::size_t unit, int step) const {
    return step > 0 && (step + fragments_[unit] * options_.every / options_.fragments) % options_.every == 0;
  }
  // A collective, before which the group may go.
  void ask(std::size_t g, const Deaths& deaths) {
    const auto death = deaths.find(static_cast<int>(g));
    if (death != deaths.end() && death->second.collective == groups_[g].asked) groups_[g].is_there = false;
    ++groups_[g].asked;
  }
  void send(std::size_t g, std::size_t u, const Deaths& deaths) {
    ask(g, deaths);
    for (std::size_t i = 0; i < anchor_[u].size(); ++i)
      groups_[g].part[u][i] = anchor_[u][i] - groups_[g].weights[u][i];
  }
  void use(std::size_t u) {
    const auto left = std::ranges::count(groups_, true, &Group::is_there);
    const auto share = static_cast<float>(1.0 / static_cast<double>(left));
    const auto momentum = static_cast<float>(options_.momentum), rate = static_cast<float>(options_.rate);
    for (std::size_t i = 0; i < anchor_[u].size(); ++i) {
      float sum = 0;
      for (const Group& each : groups_)
        if (each.is_there) sum += each.part[u][i];
      float gradient = sum * share;
      if (momentum > 0) {
        momentum_[u][i] *= momentum;
        momentum_[u][i] += gradient;
        const float ahead = momentum_[u][i] * momentum;
        gradient += ahead;
      }
      gradient *= -rate;
      anchor_[u][i] += gradient;
      for (Group& each : groups_) {
        if (options_.blend == 1) {
          each.weights[u][i] = anchor_[u][i];
          continue;
        }
        const float blended = anchor_[u][i] * static_cast<float>(options_.blend);
        each.weights[u][i] *= static_cast<float>(1 - options_.blend);
        each.weights[u][i] += blended;
      }
    }
  }

  OuterStepOptions options_;
  std::vector<Group> groups_;
  std::vector<std::vector<float>> anchor_, momentum_;  // by unit
  std::vector<int> fragments_;
};

// Steps of a strategy on one rank, which is a group by itself. `lost`: groups that are to be told of, in this order.
std::vector<double> stepped(Communicator& direct, const StrategyMaker& make, const Deaths& deaths) {
  const auto found = deaths.find(direct.rank());
  const Death death = found == deaths.end() ? Death{} : found->second;
  std::int64_t before = -1, asked = 0;
  WatchedCommunicator ranks(direct, [&](std::int64_t number, const Collective&) {
    asked = number + 1;
    if (death.collective >= 0 && before >= 0 && number - before >= death.collective) die();
  });
  SurvivingGroups groups(ranks, 1);
  std::size_t told = 0;
  groups.when_lost([&](const LostGroup& lost) {
    ++told;
    EXPECT_TRUE(deaths.contains(lost.number));
    EXPECT_EQ(lost.first, lost.number);
    EXPECT_EQ(lost.last, lost.number);
    EXPECT_EQ(lost.left, groups.ranks().size());
  });
  const Context context = testing::context(1);
  std::vector<StrategyUnit> units;
  for (const std::int64_t count : kUnits) units.push_back({"unit", kernels::full(context, {count}, 1), Tensor()});
  const auto strategy = make();
  strategy->begin({.units = units, .context = context, .outer = groups.axis()});
  before = asked;
  for (int step = 1; step <= kSteps; ++step) {
    if (death.step == step) die();
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::vector<double> moves;
      for (std::size_t i = 0; i < static_cast<std::size_t>(kUnits[u]); ++i)
        moves.push_back(move_of(direct.rank(), step, u, i));
      kernels::accumulate(units[u].weights, tensor_of(context, moves, {kUnits[u]}));
    }
    strategy->after_step([] { return true; });
  }
  EXPECT_EQ(told, static_cast<std::size_t>(direct.size() - groups.ranks().size()));
  std::vector<double> all;
  for (const StrategyUnit& unit : units) std::ranges::copy(doubles(unit.weights), std::back_inserter(all));
  return all;
}

void expect_reference(const OuterStepOptions& options, int n, const StrategyMaker& make, const Deaths& deaths,
                      const std::string& what) {
  Reference reference(options, n);
  reference.train(deaths);
  const auto left = results_of_those_left(
      n, [&](Communicator& direct) { return stepped(direct, make, deaths); }, impatient());
  for (int g = 0; g < n; ++g) {
    const std::vector<double>& mine = left[static_cast<std::size_t>(g)];
    if (deaths.contains(g) && mine.empty()) continue;
    EXPECT_TRUE(reference.is_there(g) && mine == reference.weights(g)) << what << ", group " << g;
  }
}

StrategyMaker outer(const OuterStepOptions& options) {
  return [options] { return make_outer_steps(options); };
}

// How many collectives a group asks for in all.
int collectives_of(const OuterStepOptions& options) {
  int sends = 0, uses = 0;
  const std::vector<int> fragments = deal_by_cost(kUnits, static_cast<int>(options.fragments));
  const auto is_due = [&](std::size_t unit, std::int64_t step) {
    return step > 0 && (step + fragments[unit] * options.every / options.fragments) % options.every == 0;
  };
  for (int step = 1; step <= kSteps; ++step) {
    bool uses_any = false;
    for (std::size_t u = 0; u < kUnits.size(); ++u) {
      sends += is_due(u, step) ? 1 : 0;
      uses_any = uses_any || is_due(u, step - options.delay);
    }
    uses += uses_any ? 1 : 0;
  }
  return sends + uses;
}

std::vector<int> some_of(int count) {
  std::vector<int> all;
  for (int i = 0; i < count; i += has_processes() ? 4 : 1) all.push_back(i);
  return all;
}

TEST(SurvivingGroups, WithoutALossStepsAreTheSame) {
  for (const OuterStepOptions& options : {kLocalSgd, kDiLoCo, kStreaming})
    expect_reference(options, 3, outer(options), {}, "no loss");
}

TEST(SurvivingGroups, GoOnFromTheMeanOfThoseThatAreLeftWhereverOneGoes) {
  for (const OuterStepOptions& options : {kLocalSgd, kDiLoCo, kStreaming})
    for (const int at : some_of(collectives_of(options)))
      expect_reference(options, 3, outer(options), {{at % 3, {.collective = at}}},
                       concat(make_outer_steps(options)->describe(), ", before collective ", at));
}

TEST(SurvivingGroups, GoOnWhereOneGoesInTheMiddleOfAWindow) {
  for (const OuterStepOptions& options : {kDiLoCo, kStreaming})
    for (const int step : {1, 5, 9})
      expect_reference(options, 4, outer(options), {{2, {.step = step}}}, concat("before step ", step));
}

// Where they go together that is before the first attempt: one that has heard of another's end before its own time has
// come asks for other collectives.
TEST(SurvivingGroups, GoOnWhereTwoGo) {
  for (const int at : {0, 2})
    expect_reference(kDiLoCo, 4, outer(kDiLoCo), {{0, {.collective = at}}, {3, {.collective = at}}},
                     concat("two before collective ", at));
  for (const OuterStepOptions& options : {kDiLoCo, kStreaming}) {
    expect_reference(options, 4, outer(options), {{0, {.step = 6}}, {3, {.step = 6}}}, "two before step 6");
    expect_reference(options, 4, outer(options), {{1, {.collective = 2}}, {2, {.step = 8}}}, "one after the other");
    expect_reference(options, 3, outer(options), {{0, {.step = 4}}, {1, {.step = 7}}}, "until one is left");
  }
}

// One that is about to go on without another one goes itself.
TEST(SurvivingGroups, GoOnWhereOneGoesWhileTheyAgreeOnAnother) {
  const auto left = results_of_those_left(
      4,
      [](Communicator& direct) -> std::vector<double> {
        SurvivingGroups groups(direct, 1);
        groups.when_lost([&](const LostGroup&) {
          if (direct.rank() == 1) die();
        });
        if (direct.rank() == 3) die();
        const Tensor x = empty(testing::context(1), {1});
        groups.attempt([&] {
          kernels::fill(x, direct.rank());
          groups.axis().all_reduce(x).wait();
        });
        return {x.item(), static_cast<double>(groups.ranks().size()), static_cast<double>(groups.ranks().losses())};
      },
      impatient());
  EXPECT_EQ(left, (std::vector<std::vector<double>>{{2, 2, 2}, {}, {2, 2, 2}, {}}));
}

// One rank goes behind a barrier, of which another one hears only that somebody has gone.
TEST(SurvivingGroups, HaveEndedAnAttemptWhereOneOfThemHas) {
  const auto left = results_of_those_left(
      4,
      [](Communicator& direct) -> std::vector<double> {
        const auto all = direct.split_apart(0, direct.rank());
        int barriers = 0;
        AlteredCommunicator ranks(direct, [&](Communicator& inner, const Collective& collective) {
          Work work = inner.begin(collective);
          const bool is_missed = direct.rank() == 1 && collective.kind == CollectiveKind::barrier && ++barriers == 2;
          if (!is_missed) return work;
          work.wait();
          all->barrier();  // the others have passed
          throw Error("rank 2 has gone", ErrorKind::peer);
        });
        SurvivingGroups groups(ranks, 1);  // with a barrier of its own
        const Tensor x = empty(testing::context(1), {1});
        int tries = 0;
        const auto sum = [&] {
          groups.attempt([&] {
            ++tries;
            kernels::fill(x, 1);
            groups.axis().all_reduce(x).wait();
          });
          return x.item();
        };
        const double before = sum();
        if (direct.rank() != 1) all->barrier();
        if (direct.rank() == 2) die();
        // The other one, which has heard of nothing, may begin this among all four.
        if (direct.rank() == 1) { EXPECT_THROW(groups.axis().all_reduce(x), Error); }
        const double after = sum();
        if (direct.rank() == 3) die();
        const double last = sum();  // of which all know how many there were before
        return {before, after, last, static_cast<double>(tries), static_cast<double>(groups.ranks().losses())};
      },
      impatient());
  EXPECT_EQ(left, (std::vector<std::vector<double>>{{4, 3, 2, 5, 2}, {4, 3, 2, 4, 2}, {}, {}}));
}

// With all numbers in 32 bits they are steps of DiLoCo without momentum.
TEST(SurvivingGroups, SendSparseStepsAgain) {
  constexpr OuterStepOptions kDense = {.every = 3, .rate = 0.7, .repeats = true};
  const StrategyMaker sparse = [] {
    return make_sparse_outer_steps({.every = 3, .rate = 0.7, .decay = 0.9, .chunk = 8, .keep = 8, .bits = 32});
  };
  for (const int at : some_of(collectives_of(kDense)))
    expect_reference(kDense, 3, sparse, {{1, {.collective = at}}}, concat("before collective ", at));
}

// The mean that a checkpoint has is of all groups, those that are lost since included.
TEST(SurvivingGroups, UseTheMeanOfACheckpointAfterALoss) {
  const auto left = results_of_those_left(
      3,
      [](Communicator& direct) -> std::vector<double> {
        const Context context = testing::context(1);
        SurvivingGroups groups(direct, 1);
        const std::vector<StrategyUnit> units = {{"unit", kernels::full(context, {1}, 8), Tensor()}};
        const auto strategy = make_outer_steps({.every = 4, .delay = 3, .repeats = true});
        strategy->begin({.units = units, .context = context, .outer = groups.axis()});
        for (const StrategyState& each : strategy->state(0)) kernels::fill(each.values, each.name == "anchor" ? 5 : 2);
        strategy->resumed(4);
        std::vector<double> seen;
        for (int step = 5; step <= 11; ++step) {
          if (step == 6 && direct.rank() == 2) die();
          if (step == 8) kernels::fill(units[0].weights, direct.rank());
          strategy->after_step([] { return true; });
          if (step >= 6) seen.push_back(units[0].weights.item());
        }
        return seen;
      },
      impatient());
  const auto expected = [](double rank) { return std::vector<double>{8, 3, rank, rank, rank, 0.5}; };
  EXPECT_EQ(left, (std::vector<std::vector<double>>{expected(0), expected(1), {}}));
}

// What f's collectives give, or an error that all throw, is had by all that are left, or by none.
TEST(SurvivingGroups, ThrowTogetherWhatAllThrow) {
  const auto left = results_of_those_left(
      3,
      [](Communicator& direct) -> std::vector<double> {
        SurvivingGroups groups(direct, 1);
        if (direct.rank() == 0) die();
        EXPECT_THROW(groups.attempt([] { throw AgreedError("no room"); }), AgreedError);
        return {static_cast<double>(groups.ranks().size())};
      },
      impatient());
  EXPECT_EQ(left, (std::vector<std::vector<double>>{{}, {2}, {2}}));
}

TEST(SurvivingGroups, EndWhereWhatBreaksThemIsNoLoss) {
  const auto told = messages(
      2,
      [](Communicator& direct) {
        SurvivingGroups groups(direct, 1);
        groups.attempt([&] {
          const Tensor x = zeros(testing::context(1), {1 + direct.rank()});
          groups.ranks().all_reduce(x).wait();
        });
      },
      impatient());
  for (const std::string& each : told) EXPECT_NE(each.find("all_reduce"), std::string::npos) << each;
}

}  // namespace
}  // namespace keel
