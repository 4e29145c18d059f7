// Weights and optimizer state of a device in the processor's memory and in files.

#include <utility>

#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/runtime/faulty_file.h"

namespace keel {
namespace {

using namespace keel::testing;

class ResidenceOnDevice : public NcclRanks {
 protected:
  struct Outcome {
    std::vector<double> values;
    std::int64_t moved = 0, planned_moved = 0, read = 0, planned_read = 0, written = 0, planned_written = 0;
    std::int64_t buckets = 0, planned_buckets = 0, host_buckets = 0, planned_host_buckets = 0;
  };

  static Outcome train(int ranks, int number, Residence optimizer, Residence parameters, std::uint64_t drain_seed = 0,
                       const UpdateSettings& settings = AdamSettings{.decoupled = true}) {
    Outcome outcome;
    on_devices(ranks,
               [&](const DeviceRank& own) {
                 UnitNet net, planned;
                 ShardedOptions options = testing::stage(number);
                 options.policy = PrecisionPolicy::of(DType::bf16);
                 options.clip = 1;
                 options.sharding.offload_optimizer = optimizer;
                 options.sharding.offload_parameters = parameters;
                 options.scratch_file = [](const std::string&) { return std::make_unique<FaultyFile>(); };
                 const auto make = [&] {
                   return make_elementwise("test", {.settings = settings, .weight_decay = 0.01});
                 };
                 const RankPlan plan =
                     plan_rank(lay_out(planned, ranks), *make(), options, ranks, own.rank(), {.on_device = true});
                 Sharded engine(net, own.context, own.devices, make(), options);
                 std::int64_t moved = 0;
                 PageTraffic before;
                 for (int step = 0; step < 3; ++step) {
                   before = engine.file_traffic();
                   moved = engine.offload_bytes();
                   own.context.allocator().reset_peaks();
                   own.context.host().allocator().reset_peaks();
                   const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, DType::bf16);
                   engine.backward(mean(net(x)), {.weight = x.dim(0)});
                   EXPECT_TRUE(engine.step(1e-2).get().taken);
                 }
                 moved = engine.offload_bytes() - moved;
                 const PageTraffic after = engine.file_traffic();
                 const auto peak = [](const Context& context) {
                   return static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak);
                 };
                 const std::int64_t buckets = peak(own.context), host_buckets = peak(own.context.host());
                 const std::vector<double> values = whole_values(engine);
                 if (own.rank() != 0) return;
                 outcome = {values,
                            moved,
                            plan.traffic.offload,
                            after.read - before.read,
                            plan.traffic.file_read,
                            after.written - before.written,
                            plan.traffic.file_written,
                            buckets,
                            plan.memory.buckets,
                            host_buckets,
                            plan.memory.host_buckets};
               },
               {.drain_seed = drain_seed});
    return outcome;
  }
};

TEST_F(ResidenceOnDevice, OfWeightsAndStatesGivesTheSameBitsAndMovesWhatThePlanSays) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {1, 3})
    for (const Residence optimizer : {Residence::device, Residence::host, Residence::file}) {
      // Where the processor updates, its AdamW is the reference.
      const Residence same = optimizer == Residence::file ? Residence::host : optimizer;
      const std::vector<double> reference = train(2, number, same, Residence::device).values;
      for (const Residence parameters : {Residence::device, Residence::host, Residence::file})
        for (const std::uint64_t seed : {0, 1}) {
          SCOPED_TRACE(concat("stage ", number, ", state on ", name_of(optimizer), ", weights on ", name_of(parameters),
                              ", seed ", seed));
          const Outcome outcome = train(2, number, optimizer, parameters, seed);
          EXPECT_TRUE(outcome.values == reference);
          EXPECT_EQ(outcome.moved, outcome.planned_moved);
          EXPECT_EQ(outcome.read, outcome.planned_read);
          EXPECT_EQ(outcome.written, outcome.planned_written);
          EXPECT_EQ(outcome.buckets, outcome.planned_buckets);
          EXPECT_EQ(outcome.host_buckets, outcome.planned_host_buckets);
        }
    }
}

TEST_F(ResidenceOnDevice, OfWeightsOnOneRankMovesWhatThePlanSays) {
  KEEL_NEEDS_DEVICES(1);
  for (const Residence parameters : {Residence::host, Residence::file}) {
    const Outcome outcome = train(1, 3, Residence::device, parameters);
    EXPECT_EQ(outcome.moved, outcome.planned_moved);
    EXPECT_GT(outcome.moved, 0);
  }
}

// Gradients come to the processor in the walk that prepares matrices, and for AdamW once more in that which updates.
TEST_F(ResidenceOnDevice, OfWhatMuonTrainsGivesTheSameBitsAndMovesWhatThePlanSays) {
  KEEL_NEEDS_DEVICES(2);
  const UpdateSettings muon = MuonSettings{.products = MuonProducts::fp32};
  for (const int number : {1, 3})
    for (const Residence same : {Residence::device, Residence::host}) {
      const std::vector<double> reference = train(2, number, same, Residence::device, 0, muon).values;
      for (const Residence optimizer : {same, Residence::file})
        for (const Residence parameters : {Residence::host, Residence::file}) {
          if (optimizer != same && same == Residence::device) continue;  // the processor updates what comes from a file
          SCOPED_TRACE(
              concat("stage ", number, ", state on ", name_of(optimizer), ", weights on ", name_of(parameters)));
          const Outcome outcome = train(2, number, optimizer, parameters, 0, muon);
          EXPECT_TRUE(outcome.values == reference);
          EXPECT_EQ(outcome.moved, outcome.planned_moved);
          EXPECT_EQ(outcome.read, outcome.planned_read);
          EXPECT_EQ(outcome.written, outcome.planned_written);
          EXPECT_EQ(outcome.buckets, outcome.planned_buckets);
          EXPECT_EQ(outcome.host_buckets, outcome.planned_host_buckets);
        }
    }
}

}  // namespace
}  // namespace keel
