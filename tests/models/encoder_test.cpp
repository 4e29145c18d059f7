// The laws of encoders: padding, types, heads, losses of what is masked, what is computed again, refusals.

#include "keel/models/encoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/nn/state.h"
#include "tests/error_of.h"
#include "tests/models/tiny_encoder.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::tiny_encoder;
using testing::token_numbers;

TEST(Encoder, ATextHasTheStatesThatItHasAloneAmongLongerOnes) {
  const Context context = testing::context(2);
  for (const EncoderFamily& family : encoder_families()) {
    Encoder model(tiny_encoder(family.name), {.head = EncoderHead::sequence, .outputs = 2});
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    constexpr std::int64_t kTime = 9;
    const Tensor tokens = token_numbers(context, {kTime, kTime}, 1);
    std::vector<std::int64_t> lengths;
    for (std::int64_t length = 1; length <= kTime; ++length) lengths.push_back(length);
    Forward pass;
    EncoderInput all = {.tokens = tokens, .lengths = from_values(context, lengths, {kTime})};
    const Tensor states = model.states(all, pass).value(), logits = model(all, pass).value();
    for (std::int64_t length = 1; length <= kTime; ++length) {
      const EncoderInput alone = {.tokens = tokens.slice(0, length - 1, length).slice(1, 0, length)};
      const std::vector<double> expected = doubles(model.states(alone, pass).value());
      EXPECT_LT(relative_error(doubles(states.select(0, length - 1).slice(0, 0, length)), expected), 1e-5)
          << family.name << " " << length;
      EXPECT_LT(relative_error(doubles(logits.select(0, length - 1)), doubles(model(alone, pass).value())), 1e-4)
          << family.name << " " << length;
    }
  }
}

TEST(Encoder, WithoutTypesEveryTokenIsOfTypeZero) {
  const Context context = testing::context(1);
  Encoder model(tiny_encoder(), {});
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  const Tensor tokens = token_numbers(context, {2, 7}, 1);
  const auto states = [&](const Tensor& types) {
    Forward pass;
    return doubles(model.states({.tokens = tokens, .types = types}, pass).value());
  };
  const std::vector<double> without = states({});
  EXPECT_LT(relative_error(without, states(zeros(context, {2, 7}, DType::i32))), 1e-6);
  EXPECT_GT(relative_error(without, states(token_numbers(context, {2, 7}, 2, 0, 2))), 1e-2);
}

// Whose logits the loss does not make.
TEST(Encoder, TheLossOfWhatIsMaskedIsThatOfAllLogits) {
  const Context context = testing::context(2);
  for (const EncoderFamily& family : encoder_families()) {
    Encoder model(tiny_encoder(family.name), {.head = EncoderHead::masked_language});
    std::vector<FlatBuffer> buffers = materialize(model, context);
    const EncoderInput input = {.tokens = token_numbers(context, {3, 8}, 1)};
    for (const DType dtype : {DType::i32, DType::i64}) {
      const auto labels = [&](std::int64_t every) {
        std::vector<double> values(24, -100);
        for (std::int64_t i = 0; i < 24; i += every) values[static_cast<std::size_t>(i)] = static_cast<double>(i);
        return testing::tensor_of(context, values, {3, 8}, dtype);
      };
      const auto gradients = [&](const CrossEntropyLoss& loss) {
        for (FlatBuffer& buffer : buffers) buffer.zero_grad();
        backward(loss.loss);
        std::vector<double> all = doubles(loss.loss.value());
        for (const FlatBuffer& buffer : buffers)
          for (const double value : doubles(buffer.gradient)) all.push_back(value);
        return all;
      };
      Forward pass;
      const CrossEntropyLoss some = model.masked_loss(input, labels(5), pass);
      EXPECT_EQ(some.count.item(), 5);
      EXPECT_LT(relative_error(gradients(some), gradients(cross_entropy(model(input, pass), labels(5)))), 1e-5)
          << family.name;
      const CrossEntropyLoss none =
          model.masked_loss(input, testing::tensor_of(context, std::vector<double>(24, -100), {3, 8}, dtype), pass);
      EXPECT_EQ(none.count.item(), 0);
      for (const double value : gradients(none)) EXPECT_EQ(value, 0);
    }
  }
}

// With dropout of everything, so that masks are drawn again as they were.
TEST(Encoder, ComputedAgainHasTheSameGradientsInLessMemory) {
  const Context context = testing::context(1);
  const EncoderInput input = {.tokens = token_numbers(context, {2, 8}, 1),
                              .types = token_numbers(context, {2, 8}, 2, 0, 2),
                              .lengths = from_values<std::int64_t>(context, {8, 5}, {2})};
  const Tensor labels = token_numbers(context, {2, 8}, 3), ids = from_values<std::int64_t>(context, {4, 7}, {2});
  const auto train = [&](bool recompute, bool drops, std::size_t& kept) {
    EncoderOptions options = tiny_encoder();
    options.layers = 4;
    if (drops) options.dropout = options.attention_dropout = options.head_dropout = 0.25;
    Encoder model(options, {.head = EncoderHead::masked_language});
    model.recompute = recompute;
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    const std::size_t before = context.memory().total.current;
    Forward pass{.training = true, .random = {.seed = 3}, .sample_ids = ids};
    const CrossEntropyLoss loss = model.masked_loss(input, labels, pass);
    kept = context.memory().total.current - before;
    backward(loss.loss);
    std::vector<double> all = doubles(loss.loss.value());
    for (const FlatBuffer& buffer : buffers)
      for (const double value : doubles(buffer.gradient)) all.push_back(value);
    return all;
  };
  std::size_t kept = 0, kept_of_all = 0, ignored = 0;
  EXPECT_EQ(train(true, true, kept), train(false, true, kept_of_all));
  EXPECT_LT(3 * kept, 2 * kept_of_all);
  EXPECT_NE(train(false, true, ignored), train(false, false, ignored));
}

// Dropout before a classifier is drawn in training alone, each time anew.
TEST(Encoder, HeadsOfClassesDropWhatTheyRead) {
  const Context context = testing::context(1);
  const EncoderInput input = {.tokens = token_numbers(context, {2, 6}, 1)};
  for (const EncoderFamily& family : encoder_families())
    for (const EncoderHead head : {EncoderHead::sequence, EncoderHead::tokens}) {
      EncoderOptions options = tiny_encoder(family.name);
      options.head_dropout = 0.5;
      if (family.drops_tokens_as_layers && head == EncoderHead::tokens) options.dropout = 0.5;
      Encoder model(options, {.head = head, .outputs = 3});
      const std::vector<FlatBuffer> buffers = materialize(model, context);
      const auto outputs = [&](bool training, std::uint64_t seed) {
        Forward pass{.training = training,
                     .random = {.seed = seed},
                     .sample_ids = from_values<std::int64_t>(context, {0, 1}, {2})};
        const Tensor value = model(input, pass).value();
        EXPECT_EQ(value.shape(), head == EncoderHead::sequence ? (Dims{2, 3}) : (Dims{2, 6, 3}));
        return doubles(value);
      };
      EXPECT_EQ(outputs(true, 1), outputs(true, 1)) << family.name;
      EXPECT_NE(outputs(true, 1), outputs(true, 2)) << family.name;
      EXPECT_NE(outputs(true, 1), outputs(false, 1)) << family.name;
      EXPECT_EQ(outputs(false, 1), outputs(false, 2)) << family.name;
    }
}

TEST(Encoder, BeginsWithThePublishedDeviations) {
  EncoderOptions options = tiny_encoder("electra");
  options.embedding = 96;
  options.width = 64;
  options.vocabulary = 300;
  options.block = 100;
  options.token_types = 50;
  Encoder model(options, {.head = EncoderHead::masked_language});
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1));
  for (const auto& [name, tensor] : state_dict(model)) {
    const std::vector<double> values = doubles(tensor);
    double square = 0;
    for (const double value : values) square += value * value / static_cast<double>(values.size());
    const double deviation = name.ends_with("bias") ? 0 : name.find("LayerNorm") != std::string::npos ? 1 : 0.02;
    EXPECT_NEAR(std::sqrt(square), deviation, 0.05 * deviation) << name;
  }
}

TEST(Encoder, RefusesWhatItCannotRead) {
  const Context context = testing::context(1);
  Encoder model(tiny_encoder(), {});
  Encoder untyped(tiny_encoder("distilbert"), {.head = EncoderHead::tokens, .outputs = 2});
  const std::vector<FlatBuffer> buffers = materialize(model, context), more = materialize(untyped, context);
  const Tensor tokens = zeros(context, {2, 4}, DType::i64);
  const auto refusal = [](const Encoder& of, const EncoderInput& input) {
    return error_of([&] {
      Forward pass;
      of.states(input, pass);
    });
  };
  EXPECT_EQ(refusal(model, {.tokens = zeros(context, {2, 16}, DType::i64)}), "");
  EXPECT_EQ(refusal(model, {.tokens = zeros(context, {2, 17}, DType::i64)}),
            "the sequence has 17 tokens, but the model's block is 16");
  EXPECT_NE(refusal(model, {.tokens = zeros(context, {4}, DType::i64)}).find("an encoder reads tokens (batch, time)"),
            std::string::npos);
  EXPECT_NE(refusal(model, {.tokens = tokens, .types = zeros(context, {2, 3}, DType::i64)})
                .find("types of tokens are shaped like the tokens"),
            std::string::npos);
  EXPECT_EQ(refusal(untyped, {.tokens = tokens, .types = tokens}),
            "distilbert has no types of tokens; leave out EncoderInput::types");
  Forward pass;
  EXPECT_EQ(error_of([&] { model({.tokens = tokens}, pass); }),
            "this encoder has no head; ask for states(), or make it with one (HeadOptions)");
  EXPECT_EQ(error_of([&] { model.masked_loss({.tokens = tokens}, tokens, pass); }),
            "this encoder has no head; make it with EncoderHead::masked_language");
  EXPECT_EQ(error_of([&] { untyped.masked_loss({.tokens = tokens}, tokens, pass); }),
            "this encoder's head does not say which token stood where; make it with EncoderHead::masked_language");
}

TEST(Encoder, RefusesShapesAndHeadsThatThereAreNot) {
  const auto refusal = [](const EncoderOptions& options, const HeadOptions& head = {}) {
    return error_of([&] { Encoder model(options, head); });
  };
  EncoderOptions options = tiny_encoder();
  options.heads = 5;
  EXPECT_EQ(refusal(options), "width 32 is not a multiple of 5 heads");
  options = tiny_encoder();
  options.layers = 0;
  EXPECT_EQ(refusal(options), "an encoder needs a vocabulary, a block, layers and a width of at least 1");
  options = tiny_encoder();
  options.family = nullptr;
  EXPECT_EQ(refusal(options), "an encoder needs a family; see encoder_family()");
  EXPECT_EQ(refusal(tiny_encoder(), {.head = EncoderHead::sequence}),
            "the head of an encoder needs outputs of at least 1, got 0");
  EXPECT_EQ(refusal(tiny_encoder(), {.head = EncoderHead::replaced}),
            "bert has no head that tells replaced tokens; electra has one");
  EXPECT_EQ(refusal(tiny_encoder("electra"), {.head = EncoderHead::replaced}), "");
  EXPECT_EQ(error_of([] { encoder_family("t5"); }),
            "unknown encoder 't5'; known are bert, roberta, xlm_roberta, distilbert, electra");
}

}  // namespace
}  // namespace keel
