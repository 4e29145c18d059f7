// ZeRO stages between devices: the same bits in every stage and for every order of work that events allow.

#include <utility>

#include "keel/dist/comm/decorators.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class NcclSharded : public NcclRanks {
 protected:
  // Losses, norms and all weights of a few steps, of one rank.
  static std::vector<double> steps(const DeviceRank& own, Communicator& devices, int stage, DType dtype,
                                   int micros = 1) {
    UnitNet net;
    ShardedOptions options = micros == 1 ? testing::stage(stage) : each_backward(stage);
    options.policy = PrecisionPolicy::of(dtype);
    options.clip = 1;
    options.micro_batches = micros;
    Sharded engine(net, own.context, devices, make_adamw({}), options);
    std::vector<double> seen;
    for (int step = 0; step < 2; ++step) {
      for (int micro = 0; micro < micros; ++micro) {
        const Tensor x = rows(own.context, step, devices, micro, micros, 100, dtype);
        const Tensor y = rows(own.context, step, devices, micro, micros, 900, dtype);
        const Variable loss = mse_loss(net(x), Variable(y));
        engine.backward(loss, {.weight = x.dim(0), .last = micro + 1 == micros});
        seen.push_back(loss.value().item());
      }
      const StepResult result = engine.step(1e-2).get();
      EXPECT_TRUE(result.taken);
      seen.push_back(result.grad_norm);
    }
    for (const double value : whole_values(engine)) seen.push_back(value);
    return seen;
  }
  static std::vector<double> train(int ranks, int stage, DType dtype, std::uint64_t drain_seed = 0, int micros = 1) {
    std::vector<double> outcome;
    on_devices(ranks,
               [&](const DeviceRank& own) {
                 const std::vector<double> seen = steps(own, own.devices, stage, dtype, micros);
                 if (own.rank() == 0) outcome = seen;
               },
               {.drain_seed = drain_seed});
    return outcome;
  }
};

TEST_F(NcclSharded, StagesAreBitwiseEqual) {
  KEEL_NEEDS_DEVICES(2);
  constexpr std::pair<int, DType> kCases[] = {
      {2, DType::f32}, {3, DType::bf16}, {4, DType::f32}, {4, DType::bf16}, {4, DType::f16}};
  for (const auto& [ranks, dtype] : kCases) {
    if (ranks > most()) continue;
    const std::vector<double> reference = train(ranks, 0, dtype);
    for (const int stage : {1, 2, 3})
      EXPECT_TRUE(train(ranks, stage, dtype) == reference) << ranks << " ranks, stage " << stage << ", " << dtype;
  }
}

TEST_F(NcclSharded, NoOrderOfWorkThatEventsAllowChangesABit) {
  KEEL_NEEDS_DEVICES(2);
  for (const int stage : {0, 1, 2, 3}) {
    const std::vector<double> reference = train(2, stage, DType::f32);
    for (const std::uint64_t seed : {1, 2, 3})
      EXPECT_TRUE(train(2, stage, DType::f32, seed) == reference) << "stage " << stage << ", seed " << seed;
  }
}

TEST_F(NcclSharded, MicroBatchesThatAreReducedOneByOneGiveTheSameBitsInEveryStageAndOrderOfWork) {
  KEEL_NEEDS_DEVICES(3);
  constexpr int kMicros = 3;
  const std::vector<double> reference = train(3, 0, DType::bf16, 0, kMicros);
  for (const int stage : {0, 1, 2, 3})
    for (const std::uint64_t seed : {1, 2})
      EXPECT_TRUE(train(3, stage, DType::bf16, seed, kMicros) == reference) << "stage " << stage << ", seed " << seed;
}

// In making the engine, in a forward or backward pass or in an update.
TEST_F(NcclSharded, AFaultBeforeAnyCollectiveEndsEveryRank) {
  KEEL_NEEDS_DEVICES(3);
  constexpr int kRanks = 3, kFailing = 1;
  for (const int stage : {0, 3}) {
    std::int64_t asked = 0;
    const auto watched = [&](const WatchedCommunicator::Callback& watch) {
      return messages(kRanks, [&](const DeviceRank& own) {
        WatchedCommunicator devices(own.devices, [&](std::int64_t at, const Collective& collective) {
          if (own.rank() == kFailing) watch(at, collective);
        });
        steps(own, devices, stage, DType::f32);
      });
    };
    watched([&](std::int64_t at, const Collective&) { asked = at + 1; });
    EXPECT_GT(asked, 10);
    for (std::int64_t fault = 0; fault < asked; fault += 1 + asked / 12) {
      const std::string reason = concat("a fault before collective ", fault);
      const std::vector<std::string> told = watched([&](std::int64_t at, const Collective&) {
        if (at == fault) throw Error(reason);
      });
      EXPECT_EQ(told[kFailing], reason);
      for (const std::string& message : told) EXPECT_NE(message, "") << reason;
    }
  }
}

}  // namespace
}  // namespace keel
