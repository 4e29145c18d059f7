// Llama, Mistral and Qwen against transformers: the golden numbers of tests/golden/decoders.json.

#include <gtest/gtest.h>

#include <map>

#include "keel/autograd/backward.h"
#include "keel/models/generation.h"
#include "tests/models/golden_samples.h"

namespace keel {
namespace {

using testing::doubles;
using testing::expect_samples;
using testing::golden_decoders;
using testing::GoldenBatch;
using testing::GoldenDecoder;
using testing::sample_error;

TEST(DecoderParity, LogitsLossAndEveryGradientAreTransformers) {
  for (const Json& stored : golden_decoders().at("cases").items()) {
    GoldenDecoder golden(stored);
    std::vector<FlatBuffer> buffers = golden.materialize();
    const GoldenBatch batch(golden.context);
    Forward pass;
    const Tensor logits = (*golden.model)(batch.tokens, pass).value();
    EXPECT_LT(sample_error("logits", batch.without_padding(logits), stored.at("logits")), 1e-5) << golden.name;
    for (const bool recompute : {false, true}) {
      for (FlatBuffer& buffer : buffers) buffer.zero_grad();
      golden.model->recompute = recompute;
      const CrossEntropyLoss result = golden.model->loss(batch.tokens, batch.targets, pass);
      EXPECT_EQ(result.count.item(), 49);
      EXPECT_NEAR(result.loss.value().item(), stored.at("losses").items()[0].number(), 2e-5) << golden.name;
      backward(result.loss);
      std::map<std::string, std::vector<double>> gradients;
      for (const FlatBuffer& buffer : buffers)
        for (const Segment& segment : buffer.segments)
          gradients[segment.name] = doubles(segment.parameter->variable.grad());
      expect_samples(golden.by_hub_name(gradients), stored.at("gradients"), 2e-5, golden.name);
    }
  }
}

TEST(DecoderParity, SeveralDocumentsInARowAreTransformers) {
  std::size_t compared = 0;
  for (const Json& stored : golden_decoders().at("cases").items()) {
    if (!stored.contains("documents")) continue;
    GoldenDecoder golden(stored);
    const std::vector<FlatBuffer> buffers = golden.materialize();
    const GoldenBatch batch(golden.context);
    std::vector<std::int32_t> documents, positions;
    const std::int64_t time = batch.tokens.dim(1);
    for (const std::int64_t length : batch.lengths)
      for (std::int64_t t = 0; t < time; ++t) {
        documents.push_back(t < length ? 0 : 1);
        positions.push_back(static_cast<std::int32_t>(t < length ? t : t - length));
      }
    Forward pass;
    const PackedDocuments packed = {spans_of(from_values(golden.context, documents, batch.tokens.shape())),
                                    from_values(golden.context, positions, batch.tokens.shape())};
    const std::vector<double> logits = doubles((*golden.model)(batch.tokens, pass, packed).value());
    EXPECT_LT(sample_error("documents", logits, stored.at("documents")), 1e-5) << golden.name;
    ++compared;
  }
  EXPECT_EQ(compared, 3U);
}

TEST(DecoderParity, GreedyTextsOf200TokensAreTransformers) {
  std::size_t compared = 0;
  for (const Json& stored : golden_decoders().at("cases").items()) {
    if (!stored.contains("greedy")) continue;
    GoldenDecoder golden(stored);
    const std::vector<FlatBuffer> buffers = golden.materialize();
    const std::vector<std::int64_t> prompt =
        GoldenBatch(golden.context).tokens.select(0, 0).slice(0, 0, 5).to_vector<std::int64_t>();
    std::vector<std::int64_t> text, expected;
    generate(*golden.model, prompt, {.tokens = 200, .temperature = 0}, [&](std::int64_t token) {
      text.push_back(token);
      return true;
    });
    for (const Json& token : stored.at("greedy").items()) expected.push_back(token.integer());
    EXPECT_EQ(text, expected) << golden.name;
    ++compared;
  }
  EXPECT_EQ(compared, 7U);
}

TEST(DecoderParity, ConfigurationsAreReadWrittenAndReadAgain) {
  for (const Json& stored : golden_decoders().at("cases").items()) {
    const GoldenDecoder golden(stored);
    const Json written = golden.spec->hub_config();
    const ModelSpecPtr again = read_hub_spec(written.dump(), "again");
    EXPECT_EQ(again->hub_config().dump(), written.dump()) << golden.name;
    // In the newer spelling, as the golden file has it, and the older one, as keel writes it.
    for (const auto& [key, value] : stored.at("config").members()) {
      if (key == "rope_parameters") {
        EXPECT_EQ(value.at("rope_theta").number(), written.at("rope_theta").number()) << golden.name;
        const Json* const scaling = written.find("rope_scaling");
        for (const auto& [name, number] : value.members()) {
          if (name == "rope_theta" || scaling->is_null()) continue;
          EXPECT_EQ(scaling->at(name).dump(), number.dump()) << golden.name << ": " << name;
        }
      } else if (written.contains(key) && key != "max_window_layers") {
        EXPECT_EQ(written.at(key).dump(), value.dump()) << golden.name << ": " << key;
      }
    }
  }
}

}  // namespace
}  // namespace keel
