// Buffers on a device: what a step makes of observations there.

#include <limits>

#include "keel/autograd/functions.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/batch_norm.h"
#include "keel/trainer/micro_step.h"
#include "tests/cuda/device.h"
#include "tests/error_of.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(BuffersOnDevice);

constexpr std::int64_t kNormedRows = 6, kNormedChannels = 4;

// An engine whose model keeps buffers, in steps of two micro-batches.
struct NormedOnDevice {
  NormedOnDevice(const Context& context, DType dtype)
      : engine(net, context, make_adamw(), {.policy = PrecisionPolicy::of(dtype), .micro_batches = 2}) {}
  PendingStep step(std::uint64_t number, double factor = 1) {
    for (const bool last : {false, true}) {
      Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
      const Tensor x =
          uniform_tensor(engine.context(), {kNormedRows, kNormedChannels}, 2 * number + (last ? 1 : 0), dtype());
      engine.backward(scale(mean(square(net(Variable(x), pass))), factor), {.weight = kNormedRows, .last = last});
    }
    return engine.step(1e-2);
  }
  DType dtype() const { return engine.options().policy.parameter; }
  std::vector<double> buffers() {
    std::vector<double> all;
    for_each_buffer(net, [&](const std::string&, Buffer& buffer) {
      for (const double each : doubles(buffer.value())) all.push_back(each);
    });
    return all;
  }
  // Without a bias, whose gradient before a norm is rounding alone.
  Sequential net{Linear(kNormedChannels, kNormedChannels, false), BatchNorm(kNormedChannels),
                 Activation(ActivationKind::tanh)};
  Sharded engine;
};

TEST_P(BuffersOnDevice, AreThoseOfTheProcessorAndStayInAStepThatIsNotTaken) {
  for (const DType dtype : kKernelTypes) {
    NormedOnDevice here(host, dtype), there(device, dtype);
    for (const std::uint64_t step : {1, 2, 3}) EXPECT_TRUE(here.step(step).get().taken && there.step(step).get().taken);
    const std::vector<double> before = there.buffers();
    EXPECT_LT(relative_error(before, here.buffers()), dtype == DType::f32 ? 1e-5 : 2e-2) << dtype;
    EXPECT_FALSE(there.step(4, std::numeric_limits<double>::infinity()).get().taken);
    EXPECT_EQ(there.buffers(), before) << dtype;
    EXPECT_TRUE(there.step(5).get().taken);
    EXPECT_NE(there.buffers(), before) << dtype;
  }
}

TEST_P(BuffersOnDevice, HaveTheSameBitsInEveryOrderOfThreads) {
  expect_same_bits_again([&] {
    NormedOnDevice normed(device, DType::bf16);
    normed.step(1).get();
    normed.step(2).get();
    std::vector<Tensor> values;
    for_each_buffer(normed.net, [&](const std::string&, Buffer& buffer) { values.push_back(buffer.value()); });
    return values;
  });
}

// The processor counts what they observe, which a graph would not repeat.
TEST_P(BuffersOnDevice, KeepAStepFromBeingRecorded) {
  NormedOnDevice normed(device, DType::bf16);
  const auto loss = [&](const Batch& batch, Forward& pass) -> Loss {
    return mean(square(normed.net(Variable(batch["x"]), pass)));
  };
  const std::string told = error_of([&] { const GraphedMicroStep graphed(loss, normed.engine); });
  EXPECT_TRUE(told.starts_with("cuda_graph is not for models whose buffers change")) << told;
}

#ifdef KEEL_EMULATED
TEST_P(BuffersOnDevice, AStepNeverWaitsForThem) {
  NormedOnDevice normed(device, DType::bf16);
  std::vector<PendingStep> steps;
  std::uint64_t waits = 0;
  for (const std::uint64_t step : {1, 2, 3}) {
    waits = emulation::Machine::get().waits();
    steps.push_back(normed.step(step));
  }
  EXPECT_EQ(emulation::Machine::get().waits(), waits) << "during the last step";
  EXPECT_TRUE(steps.back().get().taken);
}
#endif

}  // namespace
}  // namespace keel
