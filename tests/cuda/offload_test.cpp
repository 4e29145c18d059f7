// An optimizer in the processor's memory, for a model on a device.

#include <chrono>
#include <thread>
#include <utility>

#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class Offload : public NcclRanks {
 protected:
  inline static const ElementwiseOptions kAdamW = {.settings = AdamSettings{.decoupled = true}, .weight_decay = 0.01};
  struct Outcome {
    std::vector<double> values;
    std::int64_t moved = 0;               // bytes of one rank in one step
    std::int64_t expected = 0;            // gradients down and weights up
    std::size_t on_device = 0, host = 0;  // bytes of masters and optimizer state
  };

  static Outcome train(int ranks, int number, DType dtype, bool offload, std::uint64_t drain_seed = 0,
                       const ElementwiseOptions& optimizer = kAdamW, WeightCode code = WeightCode::exact) {
    Outcome outcome;
    on_devices(ranks,
               [&](const DeviceRank& own) {
                 UnitNet net;
                 ShardedOptions options = testing::stage(number);
                 options.policy = PrecisionPolicy::of(dtype);
                 options.clip = 1;
                 options.sharding.offload_optimizer = offload ? Residence::host : Residence::device;
                 options.sharding.weight_code = code;
                 Sharded engine(net, own.context, own.devices, make_elementwise("test", optimizer), options);
                 for (int step = 0; step < 3; ++step) {
                   const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, dtype);
                   engine.backward(mean(net(x)), {.weight = x.dim(0)});
                   EXPECT_TRUE(engine.step(1e-2).get().taken);
                 }
                 const std::int64_t moved = engine.offload_bytes() / 3;
                 const std::vector<double> values = whole_values(engine);
                 if (own.rank() != 0) return;
                 outcome.values = values;
                 outcome.moved = moved;
                 for (const auto& unit : engine.units())
                   outcome.expected += 2 * unit->owned().count() * static_cast<std::int64_t>(size_of(dtype));
                 outcome.on_device = own.context.memory()[Purpose::optimizer].current;
                 outcome.host = own.context.host().memory()[Purpose::optimizer].current;
               },
               {.drain_seed = drain_seed});
    return outcome;
  }
};

TEST_F(Offload, GivesTheBitsOfAnOptimizerOnTheProcessor) {
  KEEL_NEEDS_DEVICES(2);
  // The processor's AdamW is the reference: stage 0 with the state there.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Outcome reference = train(2, 0, dtype, true);
    for (const int number : {1, 2, 3}) EXPECT_TRUE(train(2, number, dtype, true).values == reference.values) << number;
    const Outcome resident = train(2, 0, dtype, false);
    EXPECT_LT(relative_error(reference.values, resident.values), dtype == DType::f32 ? 1e-6 : 1e-3);
  }
}

TEST_F(Offload, AdvancesTheNumbersThatAllElementsShareOnceAStep) {
  KEEL_NEEDS_DEVICES(2);
  for (const UpdateSettings& settings : {UpdateSettings(NAdamSettings{}), UpdateSettings(AsgdSettings{.lambd = 0.5}),
                                         UpdateSettings(AdagradSettings{.initial_accumulator = 0.1})}) {
    const ElementwiseOptions optimizer{.settings = settings, .weight_decay = 0.01};
    const Outcome reference = train(2, 0, DType::f32, true, 0, optimizer);
    for (const int number : {1, 2, 3})
      EXPECT_TRUE(train(2, number, DType::f32, true, 0, optimizer).values == reference.values) << number;
    EXPECT_LT(relative_error(reference.values, train(2, 3, DType::f32, false, 0, optimizer).values), 1e-6);
  }
}

TEST_F(Offload, MeasuresWholeParametersWhereTheOptimizerIs) {
  KEEL_NEEDS_DEVICES(2);
  for (const UpdateSettings& settings : {UpdateSettings(LambSettings{}), UpdateSettings(AdafactorSettings{})}) {
    const ElementwiseOptions optimizer{.settings = settings, .weight_decay = 0.01};
    const auto values = [&](int number, bool offload) {
      return train(2, number, DType::f32, offload, 0, optimizer).values;
    };
    const std::vector<double> offloaded = values(0, true), resident = values(0, false);
    EXPECT_TRUE(values(2, true) == offloaded);
    EXPECT_TRUE(values(3, false) == resident);
    EXPECT_LT(relative_error(offloaded, resident), 1e-6);
  }
}

// Matrices travel among devices, also where they are prepared and transformed on processors; averages lie where masters
// do.
TEST_F(Offload, TransformsMatricesAndKeepsAveragesWhereTheOptimizerIs) {
  KEEL_NEEDS_DEVICES(2);
  for (const auto& [settings, bound] : {std::pair(UpdateSettings(MuonSettings{.products = MuonProducts::fp32}), 1e-4),
                                        std::pair(UpdateSettings(ScheduleFreeSettings{}), 1e-6)}) {
    const ElementwiseOptions optimizer{.settings = settings, .weight_decay = 0.01};
    const auto values = [&](int number, bool offload) {
      return train(2, number, DType::f32, offload, 0, optimizer).values;
    };
    const std::vector<double> offloaded = values(0, true), resident = values(0, false);
    for (const int number : {2, 3}) {
      EXPECT_TRUE(values(number, true) == offloaded) << number;
      EXPECT_TRUE(values(number, false) == resident) << number;
    }
    EXPECT_LT(relative_error(offloaded, resident), bound);
  }
}

// Blocks of codes, whose roundings on a processor and on a device may differ by a code.
TEST_F(Offload, KeepsStatesInEightBitsWhereTheOptimizerIs) {
  KEEL_NEEDS_DEVICES(2);
  const ElementwiseOptions optimizer{.settings = AdamSettings{.decoupled = true, .min_8bit_size = 4096},
                                     .weight_decay = 0.01};
  const auto values = [&](int number, bool offload) {
    return train(2, number, DType::f32, offload, 0, optimizer).values;
  };
  const std::vector<double> offloaded = values(0, true), resident = values(0, false);
  for (const int number : {2, 3}) {
    EXPECT_TRUE(values(number, true) == offloaded) << number;
    EXPECT_TRUE(values(number, false) == resident) << number;
  }
  EXPECT_LT(relative_error(offloaded, resident), 1e-3);
}

// Weights are gathered as codes (qwZ), of those that come from the processor's memory.
TEST_F(Offload, GathersTheSameWeightsFromCodesInEveryStage) {
  KEEL_NEEDS_DEVICES(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const WeightCode code : {WeightCode::int8, WeightCode::int4}) {
      const auto values = [&](int number, bool offload) {
        return train(2, number, dtype, offload, 0, kAdamW, code).values;
      };
      const std::vector<double> offloaded = values(0, true);
      for (const int number : {1, 2, 3}) EXPECT_TRUE(values(number, true) == offloaded) << "stage " << number;
      EXPECT_TRUE(values(3, false) == values(0, false));
      EXPECT_FALSE(train(2, 0, dtype, true).values == offloaded) << "what is compared are codes";
    }
}

// L-BFGS works in the processor's memory alone, and evaluates the loss on the device.
TEST_F(Offload, LbfgsGivesTheSameBitsInEveryStage) {
  KEEL_NEEDS_DEVICES(2);
  std::vector<double> reference;
  for (const int number : {0, 1, 2, 3})
    on_devices(2, [&](const DeviceRank& own) {
      UnitNet net;
      ShardedOptions options = testing::stage(number);
      const LbfgsOptions lbfgs = {.max_iterations = 3, .history = 2};
      if (number == 0) {
        UnitNet other;
        EXPECT_THROW(Sharded(other, own.context, own.devices, make_lbfgs(lbfgs), options), Error) << "not offloaded";
      }
      options.sharding.offload_optimizer = Residence::host;
      Sharded engine(net, own.context, own.devices, make_lbfgs(lbfgs), options);
      const Tensor x = rows(own.context, 0, own.devices, 0, 1, 100, DType::f32);
      const Closure closure = [&] {
        const Variable loss = mean(square(net(x)));
        engine.backward(loss, {.weight = x.dim(0)});
        return loss.value().item();
      };
      int evaluations = 0;
      for (int step = 0; step < 2; ++step) evaluations += engine.step(closure, 0.5).get().evaluations;
      EXPECT_GT(evaluations, 2);
      std::int64_t once = 0;
      for (const auto& unit : engine.units()) once += 2 * unit->owned().count() * 4;
      EXPECT_EQ(engine.offload_bytes(), evaluations * once);
      const std::vector<double> values = whole_values(engine);
      if (own.rank() != 0) return;
      if (number == 0) reference = values;
      EXPECT_TRUE(values == reference) << "stage " << number;
    });
}

// Every rank refuses by itself, one of them late: the first one to leave must not take the communicator with it.
TEST_F(Offload, WhatEveryRankRefusesLeavesTheCommunicatorToUse) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [&](const DeviceRank& own) {
    UnitNet net;
    ShardedOptions options = testing::stage(2);
    options.sharding.offload_optimizer = Residence::host;
    options.groups = [&](std::string_view, const Dims&) {
      if (own.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return ParameterGroup{.lr_factor = 0.5};
    };
    try {
      Sharded(net, own.context, own.devices, make_lbfgs({}), options);
      ADD_FAILURE() << "rates of their own were taken";
    } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what(); }
    const Tensor ranks = brought(own.context, own.rank(), 4, DType::f32);
    own.devices.all_reduce(ranks).wait();
    EXPECT_EQ(ranks.to_vector<float>().size(), 4u);
  });
}

TEST_F(Offload, KeepsNoStateOnTheDeviceAndMovesGradientsAndWeightsOnce) {
  KEEL_NEEDS_DEVICES(2);
  for (const int ranks : {2, 3, 4}) {
    if (ranks > most()) continue;
    for (const int number : {1, 2, 3}) {
      const Outcome offloaded = train(ranks, number, DType::bf16, true);
      const Outcome resident = train(ranks, number, DType::bf16, false);
      EXPECT_EQ(offloaded.on_device, 0u);
      EXPECT_GE(offloaded.host, resident.on_device);
      EXPECT_EQ(offloaded.moved, offloaded.expected) << ranks << " ranks, stage " << number;
    }
  }
}

TEST_F(Offload, NoOrderOfWorkThatEventsAllowChangesABit) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {1, 3}) {
    const std::vector<double> reference = train(2, number, DType::bf16, true).values;
    for (const std::uint64_t seed : {1, 2, 3})
      EXPECT_TRUE(train(2, number, DType::bf16, true, seed).values == reference)
          << "stage " << number << ", seed " << seed;
  }
}

}  // namespace
}  // namespace keel
