// Gradients of a device in the processor's memory and in files.

#include <utility>
#include <vector>

#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/files_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct GradientCase {
  int ranks = 2, number = 0;
  DType dtype = DType::bf16;
  int micro_batches = 1;
  UpdateSettings settings = kFiledAdamW;
  Residence optimizer = Residence::device, parameters = Residence::device, gradients = Residence::device;
  Accumulation accumulation = Accumulation::deferred;
  std::uint64_t drain_seed = 0;
  int steps = 3;
  std::int64_t budget = kLittleOfMatrices;

  ShardedOptions options() const {
    ShardedOptions options = in_dtype(number, dtype, micro_batches);
    options.clip = 0.01;
    options.sharding.accumulation = accumulation;
    options.sharding.offload_optimizer = optimizer;
    options.sharding.offload_parameters = parameters;
    options.sharding.offload_gradients = gradients;
    options.sharding.offload_budget = budget;
    if (dtype == DType::f16) options.loss_scale = 65536 * 4;
    return options;
  }
  std::string text() const {
    return concat("stage ", number, ", ", ranks, " ranks, ", dtype, ", ", micro_batches, " micro-batches ",
                  name_of(accumulation), ", optimizer ", settings.index(), " on ", name_of(optimizer), ", weights on ",
                  name_of(parameters), ", gradients on ", name_of(gradients), ", seed ", drain_seed);
  }
};

// Bytes of a rank's second step, and what the rank keeps.
struct GradientBytes {
  std::int64_t moved = 0, read = 0, written = 0, file = 0, gradient = 0, host = 0, buckets = 0, host_buckets = 0;
  bool operator==(const GradientBytes&) const = default;
};

class GradientsOfDevice : public NcclRanks {
 protected:
  struct Outcome {
    std::vector<double> values;  // of all ranks' weights and state, and what steps told
    std::vector<GradientBytes> counted, planned;
  };

  template <class Net>
  static Outcome train(const GradientCase& each) {
    std::vector<std::vector<double>> values(static_cast<std::size_t>(each.ranks));
    Outcome outcome;
    outcome.counted.resize(values.size());
    outcome.planned.resize(values.size());
    on_devices(
        each.ranks,
        [&](const DeviceRank& own) {
          const ShardedOptions options = each.options();
          Net net, laid;
          const auto make = [&] { return make_elementwise("test", {.settings = each.settings, .weight_decay = 0.01}); };
          const auto rank = static_cast<std::size_t>(own.rank());
          const RankPlan plan = plan_rank(lay_out(laid, each.ranks, make()->requirements().block), *make(), options,
                                          each.ranks, own.rank(), {.on_device = true});
          outcome.planned[rank] = {plan.traffic.offload, plan.traffic.file_read,  plan.traffic.file_written,
                                   plan.memory.file,     plan.memory.gradient,    plan.memory.host,
                                   plan.memory.buckets,  plan.memory.host_buckets};
          Sharded engine(net, own.context, own.devices, make(), options);
          GradientBytes& counted = outcome.counted[rank];
          counted.gradient = bytes(own.context, Purpose::gradient);
          counted.host = bytes(own.context.host(), Purpose::gradient) + bytes(own.context.host(), Purpose::optimizer) +
                         bytes(own.context.host(), Purpose::parameter);
          counted.file = engine.file_bytes();
          for (int step = 0; step < each.steps; ++step) {
            const PageTraffic before = engine.file_traffic();
            const std::int64_t moved = engine.offload_bytes();
            own.context.allocator().reset_peaks();
            own.context.host().allocator().reset_peaks();
            for (int micro = 0; micro < each.micro_batches; ++micro) {
              const Tensor x = rows(own.context, step, own.devices, micro, each.micro_batches, 100, each.dtype);
              engine.backward(mean(square(net(x))), {.weight = x.dim(0), .last = micro + 1 == each.micro_batches});
            }
            const StepResult result = engine.step(1e-2).get();
            for (const auto& unit : engine.units())
              if (!unit->split().pages_values) unit->parameters().wait_gathered();
            values[rank].push_back(std::isfinite(result.grad_norm) ? result.grad_norm : -1);
            values[rank].push_back(result.taken ? 1 : 0);
            const PageTraffic after = engine.file_traffic();
            counted.moved = engine.offload_bytes() - moved;
            counted.read = after.read - before.read;
            counted.written = after.written - before.written;
            counted.buckets = static_cast<std::int64_t>(own.context.memory()[Purpose::bucket].peak);
            counted.host_buckets = static_cast<std::int64_t>(own.context.host().memory()[Purpose::bucket].peak);
          }
          for (const double number : whole_values(engine)) values[rank].push_back(number);
          for (const double number : numbers_of(engine.weights())) values[rank].push_back(number);
          for (const double number : numbers_of(engine.optimizer_state())) values[rank].push_back(number);
        },
        {.drain_seed = each.drain_seed});
    for (const std::vector<double>& of_rank : values)
      outcome.values.insert(outcome.values.end(), of_rank.begin(), of_rank.end());
    return outcome;
  }

  // The same bits as with gradients where they are computed, and as many bytes as the plan says.
  template <class Net>
  static void expect_same(const GradientCase& each, const std::vector<double>& reference) {
    SCOPED_TRACE(each.text());
    const Outcome outcome = train<Net>(each);
    EXPECT_TRUE(outcome.values == reference);
    for (std::size_t rank = 0; rank < outcome.counted.size(); ++rank) {
      const GradientBytes &counted = outcome.counted[rank], &planned = outcome.planned[rank];
      EXPECT_EQ(counted.moved, planned.moved) << rank;
      EXPECT_EQ(counted.read, planned.read) << rank;
      EXPECT_EQ(counted.written, planned.written) << rank;
      EXPECT_EQ(counted.file, planned.file) << rank;
      EXPECT_EQ(counted.gradient, planned.gradient) << rank;
      EXPECT_EQ(counted.host, planned.host) << rank;
      EXPECT_EQ(counted.buckets, planned.buckets) << rank;
      EXPECT_EQ(counted.host_buckets, planned.host_buckets) << rank;
    }
  }

  static std::int64_t bytes(const Context& context, Purpose purpose) {
    return static_cast<std::int64_t>(context.memory()[purpose].current);
  }

  // With the optimizer's state there, and with the reference of an update in the same place.
  template <class Net>
  static void expect_same_everywhere(GradientCase each, const std::vector<Residence>& optimizers) {
    for (const Residence optimizer : optimizers) {
      each.gradients = Residence::device;
      each.optimizer = optimizer == Residence::file ? Residence::host : optimizer;  // the processor updates
      const std::vector<double> reference = train<Net>(each).values;
      each.optimizer = optimizer;
      for (const Residence gradients : {Residence::host, Residence::file}) {
        each.gradients = gradients;
        expect_same<Net>(each, reference);
      }
    }
  }
};

TEST_F(GradientsOfDevice, GiveItsBitsInEveryStageAndNumberOfRanksWhereverTheOptimizerIs) {
  KEEL_NEEDS_DEVICES(3);
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3})
      for (const int micro_batches : {1, 4}) {
        if (ranks == 3 && micro_batches == 1) continue;
        const std::vector<Residence> all = {Residence::device, Residence::host, Residence::file};
        const auto one = static_cast<std::size_t>(number + ranks + micro_batches) % all.size();
        expect_same_everywhere<UnitNet>({.ranks = ranks, .number = number, .micro_batches = micro_batches},
                                        ranks == 2 && micro_batches == 4 ? all : std::vector{all[one]});
      }
}

// Short ones, of whatever is moved between a device and the processor.
TEST_F(GradientsOfDevice, GiveItsBitsInTwoStepsOfOneRankFromFiles) {
  KEEL_NEEDS_DEVICES(1);
  expect_same_everywhere<UnitNet>({.ranks = 1, .parameters = Residence::file, .steps = 2}, {Residence::file});
}

TEST_F(GradientsOfDevice, GiveItsBitsInTwoStepsOfOneRankFromTheProcessorsMemory) {
  KEEL_NEEDS_DEVICES(1);
  expect_same_everywhere<UnitNet>(
      {.ranks = 1, .settings = LambSettings{}, .parameters = Residence::host, .steps = 2, .budget = kMuch},
      {Residence::host});
}

TEST_F(GradientsOfDevice, GiveItsBitsToMatricesInTwoStepsOfOneRank) {
  KEEL_NEEDS_DEVICES(1);
  expect_same_everywhere<HiddenNet>(
      {.ranks = 1, .settings = MuonSettings{.products = MuonProducts::fp32}, .steps = 2, .budget = kMuch},
      {Residence::file});
}

TEST_F(GradientsOfDevice, GiveItsBitsInFp32AndWhereSumsAreTakenAfterEachBackward) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {0, 3})
    expect_same_everywhere<UnitNet>({.number = number, .dtype = DType::f32}, {Residence::device, Residence::host});
  for (const int number : {1, 2, 3})
    expect_same_everywhere<UnitNet>({.number = number, .micro_batches = 4, .accumulation = Accumulation::each_backward},
                                    {Residence::device, Residence::file});
}

TEST_F(GradientsOfDevice, GiveItsBitsWhereStepsAreSkipped) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {0, 3}) {
    const GradientCase each{.number = number, .dtype = DType::f16, .micro_batches = 2, .steps = 5};
    const std::vector<double> told = train<UnitNet>(each).values;
    EXPECT_EQ(told[1], 0) << "the first step is skipped";
    EXPECT_EQ(told[9], 1) << "and the last one is not";
    expect_same_everywhere<UnitNet>(each, {Residence::device, Residence::file});
  }
}

// Of matrices, which two walks prepare and update, and of parameters that are measured whole.
TEST_F(GradientsOfDevice, GiveItsBitsToOtherOptimizers) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {0, 1, 3})
    expect_same_everywhere<HiddenNet>(
        {.number = number, .settings = MuonSettings{.products = MuonProducts::fp32}, .budget = kMuch},
        {Residence::device, Residence::host, Residence::file});
  for (const int number : {1, 3})
    expect_same_everywhere<UnitNet>({.number = number, .settings = LambSettings{}, .budget = kMuch},
                                    {Residence::device, Residence::host, Residence::file});
}

TEST_F(GradientsOfDevice, GiveItsBitsWhereWeightsLeaveItTooAndInAnyOrderOfWorkThatEventsAllow) {
  KEEL_NEEDS_DEVICES(2);
  for (const int number : {1, 3})
    for (const std::uint64_t seed : {1, 2}) {
      const Residence parameters = seed == 1 ? Residence::host : Residence::file;
      expect_same_everywhere<UnitNet>(
          {.number = number, .micro_batches = 2, .parameters = parameters, .drain_seed = seed, .budget = kMuch},
          {Residence::device, Residence::file});
    }
}

// A file that fails while a gradient is written or read ends the step of all ranks.
TEST_F(GradientsOfDevice, WhoseFileFailsEndTheStepOfAllRanks) {
  KEEL_NEEDS_DEVICES(3);
  for (const auto& each : {std::pair(1, 2), {3, 2}, {3, 3}})
    for (const Residence optimizer : {Residence::device, Residence::host})
      for (const FaultyFile::Call call : {FaultyFile::Call::read, FaultyFile::Call::write}) {
        const std::vector<std::string> told = messages(each.second, [&](const DeviceRank& own) {
          UnitNet net;
          ShardedOptions options =
              GradientCase{.number = each.first, .optimizer = optimizer, .gradients = Residence::file}.options();
          options.scratch_file = [&](const std::string&) {
            return std::make_unique<FaultyFile>(own.rank() == 1 ? fails_from(call, 6, "Input/output error")
                                                                : FaultyFile::Fault{});
          };
          Sharded engine(net, own.context, own.devices, make_adamw(), options);
          for (int step = 0; step < 4; ++step) {
            const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, DType::bf16);
            engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
            engine.step(1e-2).get();
          }
        });
        for (const std::string& message : told)
          EXPECT_NE(message.find("Input/output error"), std::string::npos)
              << "stage " << each.first << ", " << each.second << " ranks, state on " << name_of(optimizer) << ": '"
              << message << "'";
      }
}

}  // namespace
}  // namespace keel
