// GPT-2 against PyTorch: the golden numbers of tests/golden/gpt2_tiny.safetensors.

#include <gtest/gtest.h>

#include "keel/autograd/backward.h"
#include "keel/data/safetensors.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/flat_buffer.h"
#include "keel/nn/models/gpt.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

GptOptions tiny() {
  GptOptions options;
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.heads = 4;
  options.width = 32;
  return options;
}

// The golden generator's rule: uniform numbers of the stream of that name, scaled by kind of tensor.
void load_golden_weights(std::vector<FlatBuffer>& buffers) {
  for (FlatBuffer& buffer : buffers)
    for (const Segment& segment : buffer.segments) {
      const bool bias = segment.name.ends_with(".bias");
      const bool norm = segment.name.find("ln_") != std::string::npos;
      const float scale = bias ? 0.1f : 0.2f;
      const float offset = norm && !bias ? 1.0f : 0.0f;
      std::vector<float> values(static_cast<std::size_t>(segment.numel));
      fill_uniform(values, 1, segment.name);
      for (float& value : values) value = (2 * value - 1) * scale + offset;
      const Tensor numbers = from_values(buffer.values.context(), values, {segment.numel});
      kernels::copy_into(buffer.values.slice(0, segment.offset, segment.offset + segment.numel), numbers);
    }
}

TEST(Parity, ATinyGpt2HasPyTorchsLogitsLossAndGradients) {
  const Context context = testing::context(1);
  const SafetensorsFile golden(KEEL_SOURCE_DIR "/tests/golden/gpt2_tiny.safetensors");
  const auto expected = [&](const std::string& name) { return doubles(golden.tensor(name, context)); };
  Gpt model(tiny());
  std::vector<FlatBuffer> buffers = materialize(model, context);
  load_golden_weights(buffers);
  const Tensor tokens = kernels::cast(golden.tensor("tokens", context), DType::i64);
  const Tensor targets = kernels::cast(golden.tensor("targets", context), DType::i64);

  Forward pass;
  EXPECT_LT(relative_error(doubles(model(tokens, pass).value()), expected("logits")), 1e-5);
  for (const bool recompute : {false, true}) {
    for (FlatBuffer& buffer : buffers) buffer.zero_grad();
    model.recompute = recompute;
    const CrossEntropyLoss result = model.loss(tokens, targets, pass);
    EXPECT_EQ(result.count, 31);
    EXPECT_LT(relative_error(doubles(result.loss.value()), expected("loss")), 1e-5);
    backward(result.loss);
    std::size_t compared = 0;
    for (const FlatBuffer& buffer : buffers)
      for (const Segment& segment : buffer.segments) {
        const Tensor grad = segment.parameter->variable.grad();
        EXPECT_LT(relative_error(doubles(grad), expected("grad." + segment.name)), 1e-5) << segment.name;
        ++compared;
      }
    EXPECT_EQ(compared, 28u);
  }
}

}  // namespace
}  // namespace keel
