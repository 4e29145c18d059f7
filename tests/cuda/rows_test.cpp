// Gradients that are kept as rows, and updates of single rows, on a device: the bits of the processor.

#include "keel/autograd/backward.h"
#include "keel/kernels/update.h"
#include "tests/cuda/device.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/rows_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(RowsOnDevice);

TEST_P(RowsOnDevice, GradientsHaveTheBitsOfTheProcessor) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t width : {1, 6, 8, 70}) {
      const auto gradient_of = [&](const Context& context) {
        Variable table(uniform_tensor(context, {50, width}, 1, dtype), true);
        table.leaf()->sparse = true;
        table.leaf()->dtype = DType::f32;
        for (std::int64_t micro = 0; micro < 3; ++micro) {
          std::vector<std::int64_t> ids;
          for (std::int64_t i = 0; i < 90; ++i) ids.push_back((i * i + micro) % 49);
          const Variable found = embedding(table, from_values(context, ids, {90}));
          backward(sum(mul(found, Variable(uniform_tensor(context, {90, width}, 2, dtype)))));
        }
        return table.row_grad();
      };
      const RowGradient there = gradient_of(device), here = gradient_of(host);
      EXPECT_EQ(doubles(there.indices()), doubles(here.indices())) << dtype << ' ' << width;
      EXPECT_EQ(doubles(there.values()), doubles(here.values())) << dtype << ' ' << width;
      EXPECT_EQ(doubles(there.dense()), doubles(here.dense())) << dtype << ' ' << width;
      EXPECT_EQ(doubles(there.between(7, 20).values()), doubles(here.between(7, 20).values())) << dtype << ' ' << width;
    }
}

TEST_P(RowsOnDevice, UpdatesHaveTheBitsOfTheProcessor) {
  struct Types {
    DType parameter, gradient;
    bool master;
  };
  const std::vector<std::int64_t> used = {0, 2, 3, 9, 28};
  for (const Types& types : {Types{DType::f32, DType::f32, false}, Types{DType::bf16, DType::f32, true},
                             Types{DType::bf16, DType::bf16, false}, Types{DType::f16, DType::f16, true}})
    for (const std::int64_t width : {1, 5, 300}) {
      const auto run = [&](const Context& context) {
        const Dims all = {29 * width};
        UpdateArgs args{};
        args.parameter = uniform_tensor(context, all, 1, types.parameter);
        if (types.master) args.master = uniform_tensor(context, all, 1);
        args.gradient = uniform_tensor(context, {5, width}, 2, types.gradient);
        args.rows = from_values(context.host(), used, {5});
        args.state = {uniform_tensor(context, all, 3), uniform_tensor(context, all, 4, DType::f32, 0, 1)};
        args.step = kernels::make_step_state(context, {.steps = 7, .taken = 1, .lr = 0.01, .gradient_scale = 0.5});
        args.settings = AdamSettings{.epsilon_first = true};
        args.stochastic_rounding = types.parameter != DType::f32 && !types.master;
        args.first = 3;
        kernels::update(args);
        args.step = kernels::make_step_state(context, {.steps = 8, .taken = 0, .lr = 0.01, .gradient_scale = 0.5});
        kernels::update(args);
        return args;
      };
      const UpdateArgs there = run(device), here = run(host);
      SCOPED_TRACE(concat(types.parameter, ' ', types.gradient, ' ', width));
      EXPECT_EQ(doubles(there.parameter), doubles(here.parameter));
      EXPECT_EQ(doubles(there.state[0]), doubles(here.state[0]));
      EXPECT_EQ(doubles(there.state[1]), doubles(here.state[1]));
      if (types.master) { EXPECT_EQ(doubles(there.master), doubles(here.master)); }
    }
}

TEST_P(RowsOnDevice, TrainingGivesTheBitsOfTheProcessorAlsoOffloaded) {
  const auto train = [&](const Context& context, bool offload) {
    Tables net;
    ShardedOptions options = stage(0);
    options.sharding.offload_optimizer = offload ? Residence::host : Residence::device;
    Sharded engine(net, context, sparse_adam(), options);
    train_tables(engine, net, 0, 3);
    return whole_values(engine);
  };
  const std::vector<double> expected = train(host, false);
  EXPECT_EQ(train(device, false), expected);
  EXPECT_EQ(train(device, true), expected);
}

class NcclRows : public NcclRanks {
 protected:
  static std::vector<double> train(int ranks, int number, std::uint64_t drain_seed = 0) {
    std::vector<double> weights;
    on_devices(ranks,
               [&](const DeviceRank& own) {
                 Tables net;
                 Sharded engine(net, own.context, own.devices, sparse_adam(), stage(number));
                 train_tables(engine, net, 0, 2);
                 const std::vector<double> whole = whole_values(engine);
                 if (own.rank() == 0) weights = whole;
               },
               {.drain_seed = drain_seed});
    return weights;
  }
};

TEST_F(NcclRows, StagesAreBitwiseEqual) {
  KEEL_NEEDS_DEVICES(2);
  for (const int ranks : {2, 3}) {
    if (ranks > most()) continue;
    const std::vector<double> reference = train(ranks, 0);
    for (const int number : {1, 2, 3})
      EXPECT_TRUE(train(ranks, number) == reference) << ranks << " ranks, stage " << number;
  }
}

TEST_F(NcclRows, NoOrderOfWorkThatEventsAllowChangesABit) {
  KEEL_NEEDS_DEVICES(2);
  const std::vector<double> reference = train(2, 2);
  for (const std::uint64_t seed : {1, 2, 3}) EXPECT_TRUE(train(2, 2, seed) == reference) << "seed " << seed;
}

}  // namespace
}  // namespace keel
