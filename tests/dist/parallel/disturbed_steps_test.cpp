// Steps of optimizers that ask the other ranks in the middle of them, among ranks that come late or fail: threads,
// processes that TCP connects, and processes of MPI.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "keel/dist/comm/choosing_communicator.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/by_commit.h"
#include "tests/dist/comm/ranks.h"
#include "tests/dist/parallel/late_results.h"
#include "tests/dist/parallel/rows_support.h"
#include "tests/dist/parallel/virtual_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Disturbed {
  const char* name;
  // Trains on one rank, and returns what it has then.
  std::vector<double> (*train)(Communicator& ranks, int stage);
  bool by_powers_of_two = false;  // of ranks alone
};
void PrintTo(const Disturbed& each, std::ostream* out) { *out << each.name; }  // NOLINT(readability-identifier-naming)

Variable loss_of(const UnitNet& net, Sharded& engine, Communicator& ranks, int step) {
  const Tensor x = rows(engine.context(), step, ranks, 0, 1, 100, DType::f32);
  return mean(square(net(x)));
}

std::vector<double> state_of(Sharded& engine) {
  std::vector<double> all = whole_values(engine);
  all.push_back(engine.state().grad_norm);
  return all;
}

void step_lbfgs(Sharded& engine, const UnitNet& net, Communicator& ranks, int step) {
  const std::int64_t mine = part({0, kBatch}, ranks.size(), ranks.rank()).count();
  const Closure closure = [&] {
    const Variable loss = loss_of(net, engine, ranks, step);
    engine.backward(loss, {.weight = mine});
    return loss.value().item();
  };
  EXPECT_GT(engine.step(closure, 0.5).get().evaluations, 1);
}

// Steps of one engine.
struct Run {
  std::unique_ptr<Optimizer> optimizer = make_adamw({});
  ShardedOptions options = {};
  DType dtype = DType::f32;
  int steps = 3;
  int micro_batches = 1;
};

// Trains, and calls `then` with the engine.
template <class F>
auto after(Run run, Communicator& ranks, const F& then) {
  const Context context = testing::context(1);
  UnitNet net;
  run.options.policy = PrecisionPolicy::of(run.dtype);
  run.options.micro_batches = run.micro_batches;
  Sharded engine(net, context, ranks, std::move(run.optimizer), run.options);
  for (int step = 0; step < run.steps; ++step) {
    for (int micro = 0; micro < run.micro_batches; ++micro) {
      const Tensor x = rows(context, step, ranks, micro, run.micro_batches, 100, run.dtype);
      engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro + 1 == run.micro_batches});
    }
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  return then(engine);
}

// bf16, so that the order of additions is seen.
std::vector<double> trained_in_micro_batches(Communicator& ranks, const ShardedOptions& order) {
  return after({.options = order, .dtype = DType::bf16, .steps = 2, .micro_batches = 3}, ranks, state_of);
}

std::vector<double> trained_by(const ElementwiseOptions& optimizer, Communicator& ranks, int number) {
  return after({.optimizer = make_elementwise("one", optimizer), .options = stage(number)}, ranks, state_of);
}

// Codes of weights and of gradients, and secondary shards, in subgroups of two where these divide the ranks.
std::vector<double> trained_as_zero_plus_plus(Communicator& ranks, int number) {
  ShardedOptions options = stage(number);
  options.compression = {.type = Compression::Type::qgz};
  options.sharding.weight_code = WeightCode::int8;
  options.sharding.secondary = true;
  options.sharding.subgroup = ranks.size() % 2 == 0 ? 2 : 1;
  return after({.options = options, .dtype = DType::bf16}, ranks, state_of);
}

// In two groups where these divide the ranks.
ShardedOptions in_groups(const Communicator& ranks, int number, const StrategyMaker& strategy) {
  ShardedOptions options = stage(number);
  options.sharding.group = ranks.size() % 2 == 0 ? ranks.size() / 2 : 1;
  options.strategy = strategy;
  return options;
}

// What each rank has: groups differ between outer steps, and ranks of one do not.
std::vector<double> of_all_ranks(Sharded& engine, Communicator& ranks) {
  const std::vector<double> mine = whole_values(engine);
  const Tensor all = empty(engine.context(), {ranks.size() * std::ssize(mine)}, DType::f64);
  ranks.all_gather(tensor_of(engine.context(), mine, {std::ssize(mine)}, DType::f64), all).wait();
  return doubles(all);
}

// Outer steps of two fragments, of which one travels while the next step is computed.
std::vector<double> trained_by_outer_steps(Communicator& ranks, int number) {
  const StrategyMaker strategy = [] {
    return make_outer_steps(
        {.every = 2, .rate = 0.7, .momentum = 0.9, .nesterov = true, .fragments = 2, .delay = 1, .blend = 0.5});
  };
  return after({.options = in_groups(ranks, number, strategy), .steps = 4}, ranks,
               [&](Sharded& engine) { return of_all_ranks(engine, ranks); });
}

std::vector<double> trained_by_sparse_outer_steps(Communicator& ranks, int number) {
  const StrategyMaker strategy = [] { return make_sparse_outer_steps({.every = 2, .chunk = 256, .keep = 16}); };
  return after({.options = in_groups(ranks, number, strategy), .steps = 5}, ranks,
               [&](Sharded& engine) { return of_all_ranks(engine, ranks); });
}

std::vector<double> trained_by_fast_components(Communicator& ranks, int number) {
  const StrategyMaker strategy = [] { return make_fast_components({.decay = 0.9, .chunk = 16, .keep = 2}); };
  return after({.optimizer = make_sgd({}), .options = in_groups(ranks, number, strategy)}, ranks, [&](Sharded& engine) {
    const std::vector<double> state = state_of(engine);
    ranks.barrier();  // the other group may have left before the last collectives of this one
    return state;
  });
}

// Sizes of buckets, prefetching and algorithms are tried meanwhile.
std::vector<double> trained_while_sizes_are_tried(Communicator& ranks, int number) {
  const Context context = testing::context(1);
  UnitNet net;
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::bf16);
  options.sharding.bucket = ShardingOptions::kAutomatic;
  options.tuning = {.buckets = {1, 1 << 20}, .prefetches = {1, 2}, .steps = 1};
  std::vector<CommunicatorWay> ways;
  for (const char* name : {"one", "another"}) ways.push_back({name, ranks.split(0, ranks.rank())});
  const std::unique_ptr<Communicator> choosing = make_choosing_communicator(std::move(ways));
  Sharded engine(net, context, *choosing, make_adamw({}), options);
  for (int step = 0; step < 4; ++step) {
    const Tensor x = rows(context, step, ranks, 0, 1, 100, DType::bf16);
    engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  return state_of(engine);
}

// Codes across groups of half the ranks, or of one each.
std::vector<double> trained_in_coded_groups(Communicator& ranks, int number) {
  const Context context = testing::context(1);
  UnitNet net;
  ShardedOptions options = stage(std::max(number, 1));
  options.sharding.group = ranks.size() % 2 == 0 ? ranks.size() / 2 : 1;
  options.compression = {.type = Compression::Type::int4};
  Sharded engine(net, context, ranks, make_adamw({}), options);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = rows(context, step, ranks, 0, 1, 100, DType::f32);
    engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  const std::vector<double> state = state_of(engine);
  ranks.barrier();  // the other group may have left before the last collectives of this one
  return state;
}

constexpr Disturbed kDisturbed[] = {
    {"Lbfgs",
     [](Communicator& ranks, int number) {
       const Context context = testing::context(1);
       UnitNet net;
       Sharded engine(net, context, ranks, make_lbfgs({.max_iterations = 3, .history = 2, .strong_wolfe = true}),
                      stage(number));
       for (int step = 0; step < 2; ++step) step_lbfgs(engine, net, ranks, step);
       return state_of(engine);
     }},
    {"SparseAdam",
     [](Communicator& ranks, int number) {
       const Context context = testing::context(1);
       Tables net;
       ShardedOptions options = stage(number);
       options.clip = 0.05;
       Sharded engine(net, context, ranks, sparse_adam(), options);
       train_tables(engine, net, 0, 3);
       return state_of(engine);
     }},
    {"AdamW8bit",
     [](Communicator& ranks, int number) {
       return trained_by({.settings = AdamSettings{.decoupled = true, .min_8bit_size = 4096}, .weight_decay = 0.1},
                         ranks, number);
     }},
    {"Muon", [](Communicator& ranks,
                int number) { return trained_by({.settings = MuonSettings{}, .weight_decay = 0.1}, ranks, number); }},
    {"ScheduleFree",
     [](Communicator& ranks, int number) {
       return trained_by({.settings = ScheduleFreeSettings{}, .weight_decay = 0.1}, ranks, number);
     }},
    {"Deferred", [](Communicator& ranks, int number) { return trained_in_micro_batches(ranks, stage(number)); }},
    {"ZeroPlusPlus", trained_as_zero_plus_plus},
    {"OuterSteps", trained_by_outer_steps},
    {"SparseOuterSteps", trained_by_sparse_outer_steps},
    {"FastComponents", trained_by_fast_components},
    {"CodedGroups", trained_in_coded_groups},
    {"TunedSizes", trained_while_sizes_are_tried},
    {"VirtualRanks",
     [](Communicator& ranks, int number) {
       return trained_in_turn(ranks, make_adamw({}), of_virtual_ranks(number, 4, 2, DType::bf16), 2);
     },
     true},
    {"EachBackward",
     [](Communicator& ranks, int number) { return trained_in_micro_batches(ranks, each_backward(number)); }},
};

// How much is tried: whatever there is, or what fits into a few seconds.
enum class Density { all, some };

// The numbers of ranks: of processes that a test forks one that the commit decides, for each case another one.
std::vector<int> sizes_of(const Disturbed& each, Density density) {
  std::vector<int> sizes;
  for (const int n : {2, 3, 4})
    if (has_ranks(n) && (!each.by_powers_of_two || n != 3)) sizes.push_back(n);
  if (density == Density::all || !has_processes() || sizes.size() < 2) return sizes;
  const auto kind =
      static_cast<std::size_t>(std::find_if(std::begin(kDisturbed), std::end(kDisturbed),
                                            [&](const Disturbed& other) { return other.name == each.name; }) -
                               std::begin(kDisturbed));
  return {sizes[(by_commit()() + kind) % sizes.size()]};
}

CommunicatorOptions impatient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

void expect_no_result_before_it_was_waited_for(const Disturbed& each) {
  const int n = sizes_of(each, Density::some).front();
  for (const int stage : {0, 1, 2, 3}) {
    const auto by_rank = [&](bool late) {
      return results(
          n,
          [&](Communicator& direct) {
            LateCommunicator ranks(direct);
            return each.train(late ? ranks : direct, stage);
          },
          impatient());
    };
    EXPECT_TRUE(by_rank(true) == by_rank(false)) << "stage " << stage;
  }
}

// What every rank has at the end; the same on all.
std::vector<double> trained(const Disturbed& each, int n, int stage, std::uint64_t delays) {
  const auto by_rank = results(
      n,
      [&](Communicator& direct) {
        DelayedCommunicator delayed(direct, delays, std::chrono::microseconds(delays == 0 ? 0 : 500));
        return each.train(delayed, stage);
      },
      impatient());
  for (const std::vector<double>& theirs : by_rank) EXPECT_TRUE(theirs == by_rank.front());
  return by_rank.front();
}

void expect_same_bits(const Disturbed& each, Density density) {
  const int seeds = density == Density::all ? 20 : has_processes() ? 1 : 2;
  for (const int n : sizes_of(each, density)) {
    const std::vector<double> reference = trained(each, n, 0, 0);
    EXPECT_GT(reference.size(), 10u);
    for (const int stage : {0, 1, 2, 3})
      for (int seed = 1; seed <= seeds; ++seed)
        EXPECT_TRUE(trained(each, n, stage, static_cast<std::uint64_t>(seed)) == reference)
            << n << " ranks, stage " << stage << ", seed " << seed;
  }
}

// How many collectives a rank asks for.
std::int64_t asked_by(const Disturbed& each, int n, int stage, int rank) {
  const auto by_rank = results(
      n,
      [&](Communicator& direct) {
        std::int64_t asked = 0;
        WatchedCommunicator watched(direct, [&](std::int64_t at, const Collective&) { asked = at + 1; });
        each.train(watched, stage);
        return std::vector<double>{static_cast<double>(asked)};
      },
      impatient());
  return static_cast<std::int64_t>(by_rank[static_cast<std::size_t>(rank)].front());
}

void expect_end_of_all(const Disturbed& each, int n, int stage, int failing, std::int64_t fault) {
  const std::string reason = concat("the fault before collective ", fault);
  const std::vector<std::string> said = messages(
      n,
      [&](Communicator& direct) {
        WatchedCommunicator watched(direct, [&](std::int64_t at, const Collective&) {
          if (at == fault && direct.rank() == failing) throw Error(reason, ErrorKind::io);
        });
        each.train(watched, stage);
      },
      impatient());
  for (int r = 0; r < n; ++r) {
    const std::string& text = said[static_cast<std::size_t>(r)];
    EXPECT_TRUE(r == failing ? text == reason : text.find(reason) != std::string::npos)
        << n << " ranks, stage " << stage << ", " << reason << " of rank " << failing << ": rank " << r << " says '"
        << text << "'";
  }
}

// Before some of the collectives, in making the engine or in a step, or before each of them.
void expect_end_of_all(const Disturbed& each, Density density) {
  std::mt19937 random = by_commit();
  for (const int n : sizes_of(each, density))
    for (const int stage : {0, 1, 2, 3}) {
      const int failing = static_cast<int>(random() % static_cast<unsigned>(n));
      const std::int64_t asked = asked_by(each, n, stage, failing);
      EXPECT_GT(asked, 10);
      std::vector<std::int64_t> faults(static_cast<std::size_t>(asked));
      std::iota(faults.begin(), faults.end(), 0);
      std::shuffle(faults.begin(), faults.end(), random);
      if (density == Density::some) faults.resize(has_processes() ? 2 : 8);
      for (const std::int64_t fault : faults) expect_end_of_all(each, n, stage, failing, fault);
    }
}

std::string name_of_case(const ::testing::TestParamInfo<Disturbed>& info) { return info.param.name; }

struct DisturbedSteps : ::testing::TestWithParam<Disturbed> {};
INSTANTIATE_TEST_SUITE_P(Of, DisturbedSteps, ::testing::ValuesIn(kDisturbed), name_of_case);

TEST_P(DisturbedSteps, GiveTheSameBitsHoweverLateRanksCome) { expect_same_bits(GetParam(), Density::some); }
TEST_P(DisturbedSteps, ReadNoResultBeforeTheyHaveWaitedForIt) {
  if (sizes_of(GetParam(), Density::some).empty()) GTEST_SKIP() << "it is for 2 or 4 ranks";
  expect_no_result_before_it_was_waited_for(GetParam());
}
TEST_P(DisturbedSteps, EndOnEveryRankWithTheReasonWhereOneFailsBeforeACollective) {
  expect_end_of_all(GetParam(), Density::some);
}

struct SlowDisturbedSteps : ::testing::TestWithParam<Disturbed> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowDisturbedSteps, ::testing::ValuesIn(kDisturbed), name_of_case);

TEST_P(SlowDisturbedSteps, GiveTheSameBitsHoweverLateRanksCome) { expect_same_bits(GetParam(), Density::all); }
TEST_P(SlowDisturbedSteps, EndOnEveryRankWithTheReasonWhereOneFailsBeforeAnyCollective) {
  expect_end_of_all(GetParam(), Density::all);
}

}  // namespace
}  // namespace keel
