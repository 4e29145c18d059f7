// Runs with adapters on a device: the processor's losses, and the same bits of steps that are recorded.

#include <cstdlib>

#include "tests/cuda/device.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(LoraOnDevice);

TEST_P(LoraOnDevice, RunsHaveTheProcessorsLossesAndRecordedStepsTheSameBits) {
  ::setenv("KEEL_TUNE_MATMUL", "0", 1);
  const TemporaryFolder place;
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> settings = {"model.lora_rank=3", "model.lora_targets=[c_attn,c_fc]",
                                         "optimizer.lr=1e-2", "steps=4",
                                         "model.layers=1",    "model.block=8",
                                         "model.dropout=0",   "batch.global=4",
                                         "batch.micro=2",     "eval.every=0"};
    settings.insert(settings.end(), more.begin(), more.end());
    return small_run(place, name, settings);
  };
  const std::string on_device = "device=" + to_string(kTestDevice);
  const Config ordinary = run("ordinary", {on_device, "strategy=fp32"}),
               graphed = run("graphed", {on_device, "strategy=fp32", "cuda_graph=true"});
  Recorder there, recorded, here;
  train(ordinary, there);
  train(graphed, recorded);
  train(run("here", {"device=cpu", "strategy=fp32"}), here);
  ASSERT_EQ(there.losses.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-4);
  EXPECT_NE(there.losses[3], there.losses[0]);
  EXPECT_EQ(recorded.losses, there.losses);
  EXPECT_EQ(weights_of(graphed), weights_of(ordinary));
}

}  // namespace
}  // namespace keel
