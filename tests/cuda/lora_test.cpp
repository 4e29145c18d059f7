// Runs with adapters on a device: the processor's losses, and the same bits of steps that are recorded.

#include "tests/cuda/device_runs.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(LoraOnDevice);

TEST_P(LoraOnDevice, RunsHaveTheProcessorsLossesAndRecordedStepsTheSameBits) {
  const TemporaryFolder place;
  const std::vector<double> losses = expect_losses_of_the_processor(
      place, {"model.lora_rank=3", "model.lora_targets=[c_attn,c_fc]", "optimizer.lr=1e-2", "eval.every=0"});
  ASSERT_EQ(losses.size(), 4U);
  EXPECT_NE(losses.back(), losses.front());
}

}  // namespace
}  // namespace keel
