// Llama, Mistral and Qwen on a device: steps beside the processor's, and runs of the trainer.

#include "keel/dist/parallel/sharded.h"
#include "tests/cuda/device_runs.h"
#include "tests/models/golden_decoders.h"

namespace keel {
namespace {

using namespace keel::testing;

const Json& stored_decoder(std::string_view name) {
  for (const Json& stored : golden_decoders().at("cases").items())
    if (stored.at("name").string() == name) return stored;
  throw Error(concat("there is no golden decoder ", name));
}

// Of AdamW steps on the golden batch.
std::vector<double> golden_losses(const Context& context, const Json& stored, DType dtype, int steps) {
  GoldenDecoder golden(stored, context);
  Sharded engine(*golden.model, context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}),
                 {.policy = PrecisionPolicy::of(dtype), .clip = 1});
  engine.load_weights(parts_of(golden.weights()));
  const GoldenBatch batch(context);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    Forward pass{.training = true, .random = {}, .sample_ids = {}, .dtype = dtype};
    const CrossEntropyLoss result = golden.model->loss(batch.tokens, batch.targets, pass);
    losses.push_back(HostCopy(result.loss.value()).get().item());
    engine.backward(result.loss, {.weight = 49});
    engine.step(1e-3);
  }
  return losses;
}

KEEL_DEVICE_SUITE(DecodersOnDevice);

TEST_P(DecodersOnDevice, StepsHaveTransformersLosses) {
  for (const char* name : {"llama3", "mistral", "qwen3_windows"}) {
    const Json& stored = stored_decoder(name);
    const std::vector<double> losses = golden_losses(device, stored, DType::f32, 3),
                              narrow = golden_losses(device, stored, DType::bf16, 2);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], stored.at("losses").items()[i].number(), 1e-4) << name << " step " << i;
    for (std::size_t i = 0; i < narrow.size(); ++i)
      EXPECT_NEAR(narrow[i], stored.at("losses").items()[i].number(), 5e-2) << name << " step " << i;
  }
}

TEST_P(DecodersOnDevice, RunsHaveTheProcessorsLossesAndTextsAndRecordedStepsTheSameBits) {
  const TemporaryFolder place;
  expect_losses_of_the_processor(place, {"model.type=qwen3", "model.kv_heads=1", "model.window=5", "model.hidden=24"});
  expect_text_of_the_processor(place / "ordinary", 0);
}

}  // namespace
}  // namespace keel
