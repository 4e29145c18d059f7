// Adapters against PEFT's, by the golden numbers of tests/golden/generate_lora.py.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/decoder.h"
#include "keel/models/lora.h"
#include "keel/nn/state.h"
#include "keel/runtime/random.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

// golden.values() of the name, as the generators give every parameter.
void fill_as_golden(Module& model, const Context& host) {
  for (const auto& [name, values] : state_dict(model)) {
    const bool bias = name.ends_with(".bias"), norm = !bias && name.find("ln_") != std::string::npos;
    std::vector<float> numbers(static_cast<std::size_t>(values.numel()));
    fill_uniform(numbers, 1, name);
    for (float& number : numbers) number = (2 * number - 1) * (bias ? 0.1F : 0.2F) + (norm ? 1 : 0);
    kernels::copy_into(values, kernels::cast(from_values(host, numbers, values.shape()), values.dtype()));
  }
}

// Norms begin at 1 and have no bias in the decoder; numbers of the GPT are those of fill_as_golden().
void fill_decoder_as_golden(Module& model, const Context& host) {
  for (const auto& [name, values] : state_dict(model)) {
    std::vector<float> numbers(static_cast<std::size_t>(values.numel()));
    fill_uniform(numbers, 1, name);
    for (float& number : numbers) number = (2 * number - 1) * 0.2F + (values.rank() == 1 ? 1 : 0);
    kernels::copy_into(values, kernels::cast(from_values(host, numbers, values.shape()), values.dtype()));
  }
}

// Logits, first gradients, and weights after ten steps; `prefix`: of the names in the file.
void expect_as_peft(CausalModel& model, const std::string& prefix, std::size_t trained_parameters,
                    const std::function<void(Module&, const Context&)>& fill) {
  const SafetensorsFile golden(KEEL_SOURCE_DIR "/tests/golden/lora.safetensors");
  const Context context = testing::context(1);
  ShardedOptions options;
  options.policy = PrecisionPolicy::of(DType::f64);
  Sharded engine(model, context, make_adamw({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}),
                 options);
  fill(model, context);
  const auto stored = [&](const std::string& name) { return doubles(golden.tensor(prefix + name, context)); };
  const Tensor tokens = kernels::cast(golden.tensor("tokens", context), DType::i64),
               targets = kernels::cast(golden.tensor("targets", context), DType::i64);
  Forward pass;
  pass.dtype = DType::f64;
  EXPECT_LT(relative_error(doubles(model(tokens, pass).value()), stored("logits")), 1e-6);
  const std::vector<double> losses = stored("loss_per_step");
  ASSERT_EQ(losses.size(), 10u);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const CrossEntropyLoss loss = model.loss(tokens, targets, pass);
    EXPECT_NEAR(loss.loss.value().item(), losses[step], 1e-6 * losses[step]) << step;
    engine.backward(loss.loss);
    if (step == 0)
      for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
        if (!parameter.trainable()) return;
        EXPECT_LT(relative_error(doubles(parameter.grad()), stored("grad." + name)), 1e-6) << name;
      });
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  std::size_t trained = 0;
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    if (!parameter.trainable()) return;
    ++trained;
    EXPECT_LT(relative_error(doubles(parameter.value()), stored("param10." + name)), 1e-6) << name;
  });
  EXPECT_EQ(trained, trained_parameters);
}

TEST(LoraGolden, LogitsGradientsAndStepsArePefts) {
  Gpt model(testing::tiny_gpt());
  add_lora(model, {.rank = 3, .alpha = 5, .targets = {"c_attn", "mlp.c_proj"}}, find_model("gpt")->naming);
  expect_as_peft(model, "", 8, fill_as_golden);
}

TEST(LoraGolden, OfAHeadAreThoseOfPeft) {
  DecoderOptions options{.vocabulary = 61, .block = 16, .layers = 2};
  options.layer = {.width = 24, .hidden = 40, .heads = 4, .kv_heads = 2, .head_size = 8};
  options.rotary.max_positions = 16;
  RotaryDecoder model(options);
  add_lora(model, {.rank = 3, .alpha = 5, .targets = {"q_proj", "lm_head"}, .trained = {"embed_tokens"}},
           find_model("llama")->naming);
  expect_as_peft(model, "head.", 7, fill_decoder_as_golden);
}

}  // namespace
}  // namespace keel
