// GPT-2 against PyTorch: the golden numbers of tests/golden/gpt2_tiny.safetensors.

#include <gtest/gtest.h>

#include "keel/autograd/backward.h"
#include "keel/data/safetensors.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/gpt.h"
#include "keel/nn/flat_buffer.h"
#include "keel/nn/state.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;
using testing::tiny_gpt;

// The golden generator's rule: uniform numbers of the stream of that name, scaled by kind of tensor.
NamedTensors golden_weights(const Context& context, Gpt& model) {
  NamedTensors weights;
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    if (name == "lm_head.weight") return;  // tied to wte.weight
    const bool bias = name.ends_with(".bias");
    const bool norm = name.find("ln_") != std::string::npos;
    const float scale = bias ? 0.1f : 0.2f;
    const float offset = norm && !bias ? 1.0f : 0.0f;
    std::vector<float> values(static_cast<std::size_t>(product(parameter.shape())));
    fill_uniform(values, 1, name);
    for (float& value : values) value = (2 * value - 1) * scale + offset;
    weights.emplace_back(name, from_values(context, values, parameter.shape()));
  });
  return weights;
}

struct GoldenGpt {
  Context context = testing::context(1);
  SafetensorsFile file{KEEL_SOURCE_DIR "/tests/golden/gpt2_tiny.safetensors"};
  Tensor tokens = kernels::cast(file.tensor("tokens", context), DType::i64);
  Tensor targets = kernels::cast(file.tensor("targets", context), DType::i64);
  std::vector<double> expected(const std::string& name) const { return doubles(file.tensor(name, context)); }
};

TEST(Parity, ATinyGpt2HasPyTorchsLogitsLossAndGradients) {
  const GoldenGpt golden;
  Gpt model(tiny_gpt());
  std::vector<FlatBuffer> buffers = materialize(model, golden.context);
  load_state(model, buffers, golden_weights(golden.context, model));

  Forward pass;
  EXPECT_LT(relative_error(doubles(model(golden.tokens, pass).value()), golden.expected("logits")), 1e-5);
  for (const bool recompute : {false, true}) {
    for (FlatBuffer& buffer : buffers) buffer.zero_grad();
    model.recompute = recompute;
    const CrossEntropyLoss result = model.loss(golden.tokens, golden.targets, pass);
    EXPECT_EQ(result.count.item(), 31);
    EXPECT_LT(relative_error(doubles(result.loss.value()), golden.expected("loss")), 1e-5);
    backward(result.loss);
    std::size_t compared = 0;
    for (const FlatBuffer& buffer : buffers)
      for (const Segment& segment : buffer.segments) {
        const Tensor grad = segment.parameter->variable.grad();
        EXPECT_LT(relative_error(doubles(grad), golden.expected("grad." + segment.name)), 1e-5) << segment.name;
        ++compared;
      }
    EXPECT_EQ(compared, 28u);
  }
}

// The bias of the keys has no gradient but rounding noise (tests/golden/README.md), which Adam magnifies.
void leave_out_key_bias(const std::string& name, std::vector<double>& values) {
  if (name.ends_with("c_attn.bias")) values.erase(values.begin() + 32, values.begin() + 64);
}

TEST(Parity, TwentyAdamWStepsOfATinyGpt2ArePyTorchs) {
  const GoldenGpt golden;
  Gpt model(tiny_gpt());
  Sharded engine(model, golden.context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}), {.clip = 1});
  engine.load_weights(parts_of(golden_weights(golden.context, model)));
  std::vector<double> losses, norms;
  for (int step = 0; step < 20; ++step) {
    Forward pass{.training = true, .random = {}, .sample_ids = {}};
    const CrossEntropyLoss result = model.loss(golden.tokens, golden.targets, pass);
    engine.backward(result.loss, {.weight = 31});
    losses.push_back(result.loss.value().item());
    norms.push_back(engine.step(1e-3).get().grad_norm);
  }
  EXPECT_LT(relative_error(losses, golden.expected("loss_per_step")), 1e-5);
  EXPECT_LT(relative_error(norms, golden.expected("grad_norm_per_step")), 1e-5);
  for (const auto& [name, tensor] : whole_tensors(engine.weights())) {
    std::vector<double> mine = doubles(tensor), expected = golden.expected("param20." + name);
    leave_out_key_bias(name, mine);
    leave_out_key_bias(name, expected);
    EXPECT_LT(relative_error(mine, expected), 1e-4) << name;
  }
}

}  // namespace
}  // namespace keel
