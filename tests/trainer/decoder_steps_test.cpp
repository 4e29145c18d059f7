// Steps of Llama, Mistral and Qwen against transformers and PyTorch: the golden numbers of tests/golden/decoders.json.

#include <gtest/gtest.h>

#include "keel/dist/parallel/sharded.h"
#include "tests/models/golden_samples.h"

namespace keel {
namespace {

using testing::doubles;
using testing::expect_samples;
using testing::golden_decoders;
using testing::GoldenBatch;
using testing::GoldenDecoder;
using testing::numbers_of;
using testing::relative_error;

TEST(DecoderSteps, TwentyAdamWStepsAreTransformers) {
  for (const Json& stored : golden_decoders().at("cases").items()) {
    GoldenDecoder golden(stored);
    Sharded engine(*golden.model, golden.context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}),
                   {.clip = 1});
    engine.load_weights(parts_of(golden.weights()));
    const GoldenBatch batch(golden.context);
    std::vector<double> losses, norms;
    for (int step = 0; step < 20; ++step) {
      Forward pass{.training = true, .random = {}, .sample_ids = {}};
      const CrossEntropyLoss result = golden.model->loss(batch.tokens, batch.targets, pass);
      engine.backward(result.loss, {.weight = 49});
      losses.push_back(result.loss.value().item());
      norms.push_back(engine.step(1e-3).get().grad_norm);
    }
    EXPECT_LT(relative_error(losses, numbers_of(stored.at("losses"))), 1e-5) << golden.name;
    EXPECT_LT(relative_error(norms, numbers_of(stored.at("norms"))), 5e-5) << golden.name;
    std::map<std::string, std::vector<double>> weights;
    for (const auto& [name, tensor] : whole_tensors(engine.weights())) weights[name] = doubles(tensor);
    expect_samples(golden.by_hub_name(weights), stored.at("weights"), 1e-3, golden.name);
  }
}

}  // namespace
}  // namespace keel
