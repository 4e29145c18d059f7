// Outer steps that are stopped after some step, and gone on with.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "keel/dist/strategies/outer_steps.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Strategies alone, that are stopped after each step: whoever goes on has the weights of one who never stopped, and so
// has whoever was saved.
TEST(ResumedOuterSteps, GoOnFromEveryStepToTheSameBits) {
  const std::vector<std::int64_t> counts = {30, 70, 20, 40};
  constexpr int kSteps = 14;
  for (const auto& [every, fragments, delay] : std::vector<std::tuple<int, int, int>>{
           {3, 1, 0}, {1, 1, 0}, {3, 1, 2}, {4, 2, 1}, {4, 2, 3}, {4, 4, 3}, {5, 3, 2}, {2, 2, 1}}) {
    const OuterStepOptions outer = {.every = every,
                                    .rate = 0.7,
                                    .momentum = 0.9,
                                    .nesterov = true,
                                    .fragments = fragments,
                                    .delay = delay,
                                    .blend = 0.75};
    run_ranks(2, [&](Communicator& comm) {
      const Context context = testing::context(1);
      struct Run {
        std::vector<StrategyUnit> units;
        std::unique_ptr<CommunicationStrategy> strategy;
        std::vector<std::vector<double>> weights;  // after each step
      };
      const auto begin = [&] {
        Run run{.units = {}, .strategy = make_outer_steps(outer), .weights = {}};
        for (const std::int64_t count : counts) run.units.push_back({"unit", kernels::full(context, {count}, 1), {}});
        run.strategy->begin({.units = run.units, .context = context, .outer = comm});
        return run;
      };
      const auto train = [&](Run& run, int from, int until) {
        for (int step = from; step < until; ++step) {
          std::vector<double> all;
          for (std::size_t u = 0; u < counts.size(); ++u) {
            const auto seed = static_cast<std::uint64_t>(100 * step) + 10 * u + static_cast<std::uint64_t>(comm.rank());
            kernels::accumulate(run.units[u].weights, uniform_tensor(context, {counts[u]}, seed));
          }
          run.strategy->after_step([] { return true; });
          for (const StrategyUnit& unit : run.units) std::ranges::copy(doubles(unit.weights), std::back_inserter(all));
          run.weights.push_back(all);
        }
      };
      Run whole = begin();
      train(whole, 0, kSteps);
      for (int stop = 1; stop < kSteps; ++stop) {
        Run first = begin(), second = begin();
        train(first, 0, stop);
        first.strategy->settle();
        for (std::size_t u = 0; u < counts.size(); ++u) {
          const auto from = first.strategy->state(u), to = second.strategy->state(u);
          ASSERT_EQ(from.size(), to.size());
          for (std::size_t i = 0; i < from.size(); ++i) kernels::copy_into(to[i].values, from[i].values);
          kernels::copy_into(second.units[u].weights, first.units[u].weights);
        }
        second.strategy->resumed(first.strategy->steps());
        second.strategy->settle();  // as one that is saved again
        train(first, stop, kSteps);
        train(second, stop, kSteps);
        const std::string what = concat(make_outer_steps(outer)->describe(), ", stopped after ", stop);
        EXPECT_TRUE(first.weights == whole.weights) << what;
        EXPECT_TRUE(
            std::ranges::equal(second.weights, std::span(whole.weights).subspan(static_cast<std::size_t>(stop))))
            << what;
        EXPECT_EQ(second.strategy->steps(), kSteps);
      }
    });
  }
}

}  // namespace
}  // namespace keel
