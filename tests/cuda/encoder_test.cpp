// Encoders on a device: rows of several lengths, heads, and training with dropout, beside the processor.

#include "keel/models/encoder.h"
#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/dist/parallel/sharded.h"
#include "tests/cuda/device.h"
#include "tests/models/tiny_encoder.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(EncoderOnDevice);

constexpr std::int64_t kEncoderRows = 3, kEncoderTime = 9;

EncoderInput encoder_input(const Context& context) {
  return {.tokens = token_numbers(context, {kEncoderRows, kEncoderTime}, 1),
          .types = token_numbers(context, {kEncoderRows, kEncoderTime}, 2, 0, 2),
          .lengths = from_values<std::int64_t>(context, {9, 1, 6}, {kEncoderRows})};
}

// Outputs of a head, then every gradient of their mean square.
std::vector<double> outputs_and_gradients(const Context& context, const HeadOptions& head) {
  EncoderOptions options = tiny_encoder("electra");
  options.embedding = 16;
  Encoder model(options, head);
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  Forward pass;
  const EncoderInput input = encoder_input(context);
  // Of rows without padding, where outputs of each token mean something.
  const Variable outputs = slice(model(input, pass), 0, 0, 1);
  backward(mean(square(outputs)));
  std::vector<double> all = doubles(outputs.value());
  for (const FlatBuffer& buffer : buffers)
    for (const double value : doubles(buffer.gradient)) all.push_back(value);
  return all;
}

TEST_P(EncoderOnDevice, HeadsHaveTheOutputsAndGradientsOfTheProcessor) {
  for (const HeadOptions& head :
       {HeadOptions{.head = EncoderHead::masked_language}, HeadOptions{.head = EncoderHead::sequence, .outputs = 3},
        HeadOptions{.head = EncoderHead::tokens, .outputs = 4}, HeadOptions{.head = EncoderHead::replaced}})
    EXPECT_LT(relative_error(outputs_and_gradients(device, head), outputs_and_gradients(host, head)), 1e-5)
        << static_cast<int>(head.head);
}

// With dropout of everything, whose masks are those of the processor.
TEST_P(EncoderOnDevice, LearnsMaskedWordsAsTheProcessorDoes) {
  const auto train = [](const Context& context, bool recompute, const Context& of_labels) {
    EncoderOptions options = tiny_encoder("roberta");
    options.dropout = options.attention_dropout = 0.1;
    Encoder model(options, {.head = EncoderHead::masked_language});
    model.recompute = recompute;
    Sharded engine(model, context, make_adamw(), {.clip = 1});
    std::vector<double> labels = uniform(kEncoderRows * kEncoderTime, 5, 0, 61);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % 9 == 0 || i % 9 == 4 ? std::floor(labels[i]) : -100;
    labels[13] = -100;  // padding
    const Tensor targets = tensor_of(of_labels, labels, {kEncoderRows, kEncoderTime}, DType::i64);
    std::vector<double> losses;
    for (std::uint64_t step = 0; step < 3; ++step) {
      Forward pass{.training = true,
                   .random = {.seed = step},
                   .sample_ids = from_values<std::int64_t>(context, {4, 1, 7}, {kEncoderRows})};
      const CrossEntropyLoss loss = model.masked_loss(encoder_input(context), targets, pass);
      engine.backward(loss.loss, {.weight = 5});
      engine.step(1e-2);
      losses.push_back(loss.loss.value().item());
    }
    return losses;
  };
  const std::vector<double> expected = train(host, false, host), losses = train(device, false, device);
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<double> labelled_alone = train(device, false, host);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-4) << "step " << i;
    EXPECT_NEAR(labelled_alone[i], expected[i], 1e-4) << "step " << i;
  }
  EXPECT_EQ(train(device, true, device), losses);
}

}  // namespace
}  // namespace keel
