// Steps of optimizers that ask the other ranks in the middle of them, among ranks that come late or fail.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "keel/dist/comm/decorators.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/rows_support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Disturbed {
  const char* name;
  // Trains on one rank, and returns what it has then.
  std::vector<double> (*train)(Communicator& ranks, int stage);
};
void PrintTo(const Disturbed& each, std::ostream* out) { *out << each.name; }

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
    engine.backward(loss, {.tokens = mine});
    return loss.value().item();
  };
  EXPECT_GT(engine.step(closure, 0.5).get().evaluations, 1);
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
       const Context context = testing::context(1);
       UnitNet net;
       Sharded engine(net, context, ranks,
                      make_elementwise("AdamW8bit", {.settings = AdamSettings{.decoupled = true, .min_8bit_size = 4096},
                                                     .weight_decay = 0.1}),
                      stage(number));
       for (int step = 0; step < 3; ++step) {
         engine.backward(loss_of(net, engine, ranks, step),
                         {.tokens = part({0, kBatch}, ranks.size(), ranks.rank()).count()});
         EXPECT_TRUE(engine.step(1e-2).get().taken);
       }
       return state_of(engine);
     }},
};

class DisturbedSteps : public ::testing::TestWithParam<Disturbed> {
 protected:
  static std::vector<double> trained(int ranks, int number, std::uint64_t delays) {
    std::vector<double> outcome;
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& direct) {
      DelayedCommunicator delayed(direct, delays, std::chrono::microseconds(delays == 0 ? 0 : 500));
      const std::vector<double> mine = GetParam().train(delayed, number);
      const std::lock_guard lock(mutex);
      if (outcome.empty()) outcome = mine;
      EXPECT_TRUE(outcome == mine) << "rank " << direct.rank();
    });
    return outcome;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, DisturbedSteps, ::testing::ValuesIn(kDisturbed),
                         [](const auto& info) { return info.param.name; });

TEST_P(DisturbedSteps, GiveTheSameBitsHoweverLateRanksCome) {
  for (const int ranks : {2, 3, 4}) {
    const std::vector<double> reference = trained(ranks, 0, 0);
    for (const int number : {0, 1, 2, 3})
      for (const std::uint64_t seed : {1, 2})
        EXPECT_TRUE(trained(ranks, number, seed) == reference)
            << ranks << " ranks, stage " << number << ", seed " << seed;
  }
}

// Whatever collective it is, in making the engine or in a step.
TEST_P(DisturbedSteps, EndOnEveryRankWithTheReasonWhereOneFailsBeforeACollective) {
  for (const int ranks : {2, 3})
    for (const int number : {0, 3}) {
      const int failing = ranks - 1;
      std::int64_t asked = 0;
      run_ranks(ranks, [&](Communicator& direct) {
        WatchedCommunicator watched(direct, [&](std::int64_t at, const Collective&) {
          if (direct.rank() == failing) asked = at + 1;
        });
        GetParam().train(watched, number);
      });
      EXPECT_GT(asked, 15);
      for (std::int64_t fault = 0; fault < asked; fault += 1 + asked / 30) {
        const std::string reason = concat("the fault before collective ", fault);
        std::atomic<int> told = 0;
        const auto train = [&](Communicator& direct) {
          WatchedCommunicator watched(direct, [&](std::int64_t at, const Collective&) {
            if (at == fault && direct.rank() == failing) throw Error(reason, ErrorKind::io);
          });
          try {
            GetParam().train(watched, number);
          } catch (const Error& error) {
            told += std::string(error.what()).find(reason) != std::string::npos;
            throw;
          }
        };
        EXPECT_EQ(error_of([&] { run_ranks(ranks, train); }), reason);
        EXPECT_EQ(told, ranks) << reason << ", stage " << number;
      }
    }
}

}  // namespace
}  // namespace keel
