// What runs of several ranks measure is what was planned for them.

#include "keel/trainer/run_plan.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"
#include "keel/trainer/trainer.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

struct Quiet : TrainObserver {};

constexpr const char* kSmallBlocks = "AdamW8bit, min_8bit_size: 256";

constexpr std::pair<const char*, const char*> kRuns[] = {{"ddp-fp32", "AdamW"},   {"zero1-bf16", "AdamW"},
                                                         {"zero2-bf16", "AdamW"}, {"zero3-fp32", "AdamW"},
                                                         {"zero3-bf16", "AdamW"}, {"zero2-bf16", kSmallBlocks}};

TEST(RunPlan, OfTwoAndThreeRanksIsWhatTheyMeasure) {
  for (const int ranks : {2, 3})
    for (const auto& [strategy, optimizer] : kRuns) {
      SCOPED_TRACE(concat(strategy, " with ", optimizer, " on ", ranks, " ranks"));
      const testing::TemporaryFolder folder;
      // No evaluation before the end, so that all bytes between two records are those of steps.
      const Config config = parse_config(
          concat(
              "steps: 5\nmodel: {layers: 2, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
              "batch: {global: 12, micro: 2}\nscheduler: {warmup: 1}\neval: {every: 0, samples: 10}\nlog: {every: 1}\n"
              "threads: 1\nstrategy: ",
              strategy, "\noptimizer: {type: ", optimizer, "}\nrun: ", folder / "run", '\n'),
          "plan.yaml");
      EXPECT_FALSE(read_measured_run(config.run).has_value());
      run_ranks(ranks, [&](Communicator& communicator) {
        Quiet quiet;
        train(config, quiet, communicator);
      });
      const RankPlan plan = plan_run(config, ranks, planned_vocabulary(config));
      const auto measured = read_measured_run(config.run);
      ASSERT_TRUE(measured.has_value());
      EXPECT_EQ(measured->ranks, ranks);
      EXPECT_EQ(to_string(measured->config.strategy), strategy);
      EXPECT_EQ(measured->parameter, plan.memory.parameter);
      EXPECT_EQ(measured->gradient, plan.memory.gradient);
      EXPECT_EQ(measured->optimizer, plan.memory.optimizer);
      // Where updates are shared while the next step begins, the first or the last of five records may not count them.
      const std::int64_t late = (plan.traffic.gathers + 3) / 4;
      ASSERT_TRUE(measured->sent.has_value());
      EXPECT_GE(*measured->sent, plan.traffic.sent() - late);
      EXPECT_LE(*measured->sent, plan.traffic.sent() + late);
      EXPECT_EQ(measured->buckets, plan.memory.buckets);
    }
}

}  // namespace
}  // namespace keel
