// Steps of encoders against transformers and PyTorch: the golden numbers of tests/golden/encoders.json.

#include <gtest/gtest.h>

#include <map>

#include "keel/dist/parallel/sharded.h"
#include "tests/models/encoder_golden.h"

namespace keel {
namespace {

using testing::expect_golden_tensors;
using testing::for_each_golden;
using testing::GoldenEncoder;

// The bias of the keys has no gradient but rounding noise, which Adam magnifies.
TEST(EncoderSteps, TwentyAdamWStepsAreThoseOfTransformers) {
  const Context context = testing::context(2);
  for_each_golden([&](const std::string& family, const std::string& head) {
    SCOPED_TRACE(family + " " + head);
    const GoldenEncoder golden(context, family, head);
    Sharded engine(*golden.model, context, make_adamw({.weight_decay = 0.01}), {});
    engine.load_weights(parts_of(golden.weights()));
    const auto& losses = golden.expected->at("losses").items();
    for (std::size_t step = 0; step < losses.size(); ++step) {
      Forward pass;
      const Variable loss = golden.loss(pass);
      EXPECT_NEAR(loss.value().item(), losses[step].number(), 1e-4) << step;
      engine.backward(loss, {.weight = 1});
      engine.step(1e-3).get();
    }
    std::map<std::string, Tensor> weights;
    for (const auto& [name, tensor] : whole_tensors(engine.weights())) weights.emplace(name, tensor);
    const bool distilbert = family == "distilbert";
    expect_golden_tensors(golden, weights, golden.expected->at("weights"), 1e-4,
                          distilbert ? "k_lin.bias" : "key.bias");
  });
}

}  // namespace
}  // namespace keel
