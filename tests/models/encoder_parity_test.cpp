// Encoders against transformers: the golden numbers of tests/golden/encoders.json.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "keel/autograd/backward.h"
#include "keel/nn/flat_buffer.h"
#include "tests/models/encoder_golden.h"

namespace keel {
namespace {

using testing::expect_golden_tensors;
using testing::for_each_golden;
using testing::golden_encoders;
using testing::GoldenEncoder;
using testing::worst_golden_row;

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
      expect_golden_tensors(golden, gradients, golden.expected->at("gradients"), 1e-5);
    }
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
