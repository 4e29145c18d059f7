// A model that does not fit into the memory of its device is refused before anything is allocated there.

#include "keel/trainer/memory_check.h"
#include "keel/models/model_keys.h"

#include <gtest/gtest.h>

#include "keel/trainer/make_task.h"
#include "keel/trainer/run_plan.h"
#include "tests/cuda/device.h"
#include "tests/error_of.h"
#include "tests/trainer/planned_model.h"
#include "tests/trainer/run_support.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kVocabulary = 40;

// What is said where so many bytes are free on the device, and the processor has as many.
std::string refusal(const Config& config, Communicator& ranks, std::int64_t device, std::int64_t machine) {
  const Context context = Context::create({.device = kTestDevice, .threads = 1});
  const auto made = model_spec(config, kVocabulary)->make_decoder();
  CausalModel& model = *made;
  return error_of([&] {
    check_memory(config, model, ranks, context,
                 {.machine = {machine, false}, .device = {device, 2 * std::max<std::int64_t>(device, 1)}});
  });
}

class DeviceMemoryCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceCount devices = count_devices(kTestDevice.type);
    if (devices.count == 0) GTEST_SKIP() << devices.why_none;
  }
  TemporaryFolder place_;
};

TEST_F(DeviceMemoryCheck, RefusesWhatThePlanSaysIsTooMuchForTheRanksOfADevice) {
  for (const char* strategy : {"ddp-fp32", "zero3-bf16"})
    for (const int n : {1, 2}) {
      const Config config =
          small_run(place_, "run", {concat("strategy=", strategy), concat("device=", to_string(kTestDevice))});
      const MemoryPlan plan = plan_run(config, *planned_model(config, kVocabulary), n, false).memory;
      const std::int64_t all = n * (plan.kept() + plan.buckets), plenty = std::int64_t{1} << 50;
      run_ranks(n, [&](Communicator& ranks) {
        EXPECT_EQ(refusal(config, ranks, all, 1), "") << "the processor's memory is not asked for";
        const std::string message = refusal(config, ranks, all - 1, plenty);
        EXPECT_TRUE(message.starts_with(concat("training needs ", n == 1 ? "" : "2 times "))) << message;
        EXPECT_NE(message.find(concat(" on ", kTestDevice, " (")), std::string::npos) << message;
        EXPECT_NE(message.find(" are free; "), std::string::npos) << message;
        Config regardless = config;
        regardless.check_memory = false;
        EXPECT_EQ(refusal(regardless, ranks, all - 1, plenty), "");
      });
    }
}

TEST_F(DeviceMemoryCheck, RefusesWhatDevicesWouldLeaveToAProcessorWithTooLittle) {
  for (const char* async : {"false", "true"}) {
    const Config config = small_run(place_, "run",
                                    {"strategy=zero2-bf16", "sharding.offload_optimizer=true",
                                     concat("checkpoint.async=", async), concat("device=", to_string(kTestDevice))});
    const MemoryPlan plan = plan_run(config, *planned_model(config, kVocabulary), 2, false).memory;
    ASSERT_GT(plan.host, 0);
    ASSERT_GT(plan.host_buckets, 0);
    EXPECT_EQ(plan.checkpoint > 0, config.checkpoint.async);
    const std::int64_t left = 2 * (plan.host + plan.host_buckets + plan.checkpoint);
    run_ranks(2, [&](Communicator& ranks) {
      const std::int64_t plenty = std::int64_t{1} << 50;
      EXPECT_EQ(refusal(config, ranks, plenty, left), "");
      EXPECT_NE(refusal(config, ranks, plenty, left - 1).find("of what GPUs leave to the processor"),
                std::string::npos);
    });
  }
}

TEST_F(DeviceMemoryCheck, ARunMeasuresWhatThePlanSaysOfTheDeviceAndOfTheProcessorsMemory) {
  int number = 0;
  for (const int n : {1, 2})
    for (const char* residences : {"sharding.offload_optimizer=true", "sharding.offload_parameters=host",
                                   "sharding={offload_parameters: host, offload_gradients: host}"}) {
      const Config config = small_run(
          place_, concat("run", ++number),
          {"strategy=zero3-bf16", residences, concat("device=", to_string(kTestDevice)), "steps=2",
           "scheduler.warmup=1", "model.layers=1", "model.block=8", "batch.global=4", "batch.micro=2", "eval.every=0"});
      SCOPED_TRACE(concat(residences, ", ", n, " ranks"));
      train_by(n, config);
      const auto run = read_measured_run(config.run);
      ASSERT_TRUE(run.has_value());
      const MemoryPlan plan = plan_run(run->config, *make_task(run->config), n).memory;
      EXPECT_EQ(run->parameter, plan.parameter);
      EXPECT_EQ(run->gradient, plan.gradient);
      EXPECT_EQ(run->optimizer, plan.optimizer);
      EXPECT_EQ(run->buckets, plan.buckets);
      EXPECT_EQ(run->host, plan.host);
      EXPECT_EQ(run->host_buckets, plan.host_buckets);
      EXPECT_GT(run->host, 0);
    }
}

#ifdef KEEL_EMULATED
TEST_F(DeviceMemoryCheck, ComesBeforeARunAllocatesOrWritesAnything) {
  emulation::Machine::get().reset({.bytes = std::size_t{4} << 20});
  for (const int n : {1, 2}) {
    const Config config = small_run(place_, "run", {"device=emulated:0", "model.width=256", "strategy=ddp-fp32"});
    std::string message;
    EXPECT_THROW(run_ranks(n,
                           [&](Communicator& ranks) {
                             Recorder recorder;
                             const std::string said = error_of([&] { train(config, recorder, ranks); });
                             if (ranks.rank() == 0) message = said;
                             if (!said.empty()) throw Error(said);
                           }),
                 Error);
    EXPECT_TRUE(message.starts_with("training needs ")) << message;
    EXPECT_NE(message.find(" of its 4.0 MiB are free; "), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(config.run));
  }
  emulation::Machine::get().reset({});
}

// What a context keeps for itself counts as free; what others have does not.
TEST_F(DeviceMemoryCheck, CountsWhatTheContextCanStillHave) {
  constexpr std::int64_t kMega = 1 << 20;
  emulation::Machine::get().reset({.bytes = std::size_t{64} << 20});
  {
    const Context one = Context::create({.device = kTestDevice}), other = Context::create({.device = kTestDevice});
    Tensor used = empty(one, {40 * kMega}, DType::u8);
    EXPECT_EQ(memory_supply(one).device.free, 24 * kMega);
    used = Tensor();
    EXPECT_EQ(memory_supply(one).device.free, 64 * kMega);
    EXPECT_EQ(memory_supply(other).device.free, 24 * kMega);
    EXPECT_EQ(memory_supply(other).device.total, 64 * kMega);
  }
  EXPECT_EQ(memory_supply(Context::create({.threads = 1})).device.total, 0) << "a processor's memory is the machine's";
  emulation::Machine::get().reset({});
}
#endif

}  // namespace
}  // namespace keel
