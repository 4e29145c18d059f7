// Encoders against transformers: the golden numbers of tests/golden/encoders.json.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "keel/autograd/backward.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/flat_buffer.h"
#include "tests/models/encoder_golden.h"

namespace keel {
namespace {

using testing::doubles;
using testing::golden_encoders;
using testing::golden_error;
using testing::golden_summary;
using testing::GoldenEncoder;
using testing::worst_golden_row;

void for_each_golden(const std::function<void(const std::string& family, const std::string& head)>& f) {
  for (const auto& [family, heads] : golden_encoders().members())
    for (const auto& [head, expected] : heads.members()) f(family, head);
}

// All tensors of transformers' model, by their names there; each must be there once.
void expect_tensors(const GoldenEncoder& golden, const std::map<std::string, Tensor>& by_parameter,
                    const Json& expected, double limit, const std::string& left_out = "none") {
  std::size_t compared = 0;
  for (const HubTensor& tensor : golden.tensors()) {
    if (!expected.contains(tensor.name)) {
      ADD_FAILURE() << "transformers has no " << tensor.name;
      continue;
    }
    ++compared;
    if (tensor.name.find(left_out) != std::string::npos) continue;
    const Tensor whole = by_parameter.at(tensor.parameter);
    const Tensor part = whole.slice(0, tensor.first_row, tensor.first_row + tensor.shape[0]);
    EXPECT_LT(golden_error(golden_summary(tensor.name, doubles(part)), expected.at(tensor.name)), limit) << tensor.name;
  }
  EXPECT_EQ(compared, expected.members().size());
}

// Rows of every length up to the longest, pairs with types where there are some.
TEST(EncoderParity, StatesLogitsLossAndEveryGradientAreThoseOfTransformers) {
  const Context context = testing::context(2);
  for_each_golden([&](const std::string& family, const std::string& head) {
    SCOPED_TRACE(family + " " + head);
    const GoldenEncoder golden(context, family, head);
    std::vector<FlatBuffer> buffers = materialize(*golden.model, context);
    load_state(*golden.model, buffers, golden.weights());
    Forward pass;
    {
      const NoGrad no_grad;
      const Tensor states = golden.model->states(golden.input(), pass).value();
      EXPECT_LT(worst_golden_row("states", states, golden.expected->at("states")), 1e-5);
      const Tensor logits = (*golden.model)(golden.input(), pass).value();
      EXPECT_LT(worst_golden_row("logits", logits, golden.expected->at("logits")), 1e-5);
    }
    for (const bool recompute : {false, true}) {
      for (FlatBuffer& buffer : buffers) buffer.zero_grad();
      golden.model->recompute = recompute;
      const Variable loss = golden.loss(pass);
      EXPECT_NEAR(loss.value().item(), golden.expected->at("losses").items()[0].number(), 2e-5);
      backward(loss);
      std::map<std::string, Tensor> gradients;
      for (const FlatBuffer& buffer : buffers)
        for (const Segment& segment : buffer.segments)
          gradients.emplace(segment.name, segment.parameter->variable.grad());
      expect_tensors(golden, gradients, golden.expected->at("gradients"), 1e-5);
    }
  });
}

// The bias of the keys has no gradient but rounding noise, which Adam magnifies.
TEST(EncoderParity, TwentyAdamWStepsAreThoseOfTransformers) {
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
    expect_tensors(golden, weights, golden.expected->at("weights"), 1e-4, distilbert ? "k_lin.bias" : "key.bias");
  });
}

// What is written is what transformers wrote, and is read as the same model again.
TEST(EncoderParity, TransformersConfigurationsAreReadAndWritten) {
  for_each_golden([&](const std::string& family, const std::string& head) {
    SCOPED_TRACE(family + " " + head);
    const Json& config = golden_encoders().at(family).at(head).at("config");
    const ModelSpecPtr spec = read_hub_spec(config.dump(), "config.json");
    EXPECT_EQ(spec->entry().name, family);
    const Json written = spec->hub_config(testing::golden_head(head));
    for (const auto& [key, value] : written.members()) {
      if (!config.contains(key)) {
        ADD_FAILURE() << "transformers does not write " << key;
        continue;
      }
      const Json& theirs = config.at(key);
      if (theirs.is_number()) {
        EXPECT_EQ(value.number(), theirs.number()) << key;
      } else {
        EXPECT_EQ(value.dump(), theirs.dump()) << key;
      }
    }
    const ModelSpecPtr again = read_hub_spec(written.dump(), "config.json");
    EXPECT_EQ(again->hub_config(testing::golden_head(head)).dump(), written.dump());
    // Keys that transformers has beside these change nothing that is computed.
    for (const auto& [key, value] : config.members()) {
      constexpr auto kOthers =
          std::to_array<std::string_view>({"add_cross_attention", "bos_token_id", "eos_token_id", "initializer_range",
                                           "is_decoder", "qa_dropout", "sinusoidal_pos_embds", "summary_activation",
                                           "summary_last_dropout", "summary_type", "summary_use_proj", "use_cache"});
      EXPECT_TRUE(written.contains(key) || std::ranges::find(kOthers, key) != kOthers.end()) << key;
    }
  });
}

}  // namespace
}  // namespace keel
