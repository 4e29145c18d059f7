// The laws of decoders with rotary positions, on small ones: caches, documents in a row, recomputation, what is
// counted.

#include "keel/models/decoder.h"

#include <gtest/gtest.h>

#include "keel/autograd/flops.h"
#include "keel/autograd/functions.h"
#include "keel/nn/state.h"
#include "tests/models/decoder_laws.h"

namespace keel {
namespace {

using namespace testing;

// As a Qwen3 whose second layer has a window.
DecoderOptions small_decoder() {
  DecoderOptions options;
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.layer = {.width = 24, .hidden = 40, .heads = 4, .kv_heads = 2, .head_size = 8};
  options.layer.head_norms = true;
  options.layer.qkv_bias = true;
  options.layer.window = 3;
  options.layer.deviation = 0.2;
  options.windowed = {false, true};
  options.rotary.max_positions = 16;
  return options;
}

// Texts of more than 8 tokens are turned by other frequencies than shorter ones, where the scaling looks at lengths.
DecoderOptions scaled_decoder(RotaryScaling scaling) {
  DecoderOptions options = small_decoder();
  options.rotary.scaling = scaling;
  options.rotary.factor = scaling == RotaryScaling::none ? 1 : 2;
  options.rotary.max_positions = options.rotary.original_positions = 8;
  options.rotary.short_factor = {1, 1.25, 1.5, 1.75};
  options.rotary.long_factor = {1.5, 2, 3, 4};
  return options;
}

TEST(Decoders, ACacheGivesTheLogitsOfTheWholeSequence) {
  const Context context = testing::context(1);
  for (const RotaryScaling scaling : {RotaryScaling::none, RotaryScaling::linear}) {
    DecoderOptions options = small_decoder();
    options.rotary.scaling = scaling;
    options.rotary.factor = scaling == RotaryScaling::none ? 1 : 2;
    RotaryDecoder model(options);
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    KeyValueCache cache = model.make_cache(2, 12);
    EXPECT_EQ(cache.capacity, 12);
    EXPECT_EQ(cache.keys[1].shape(), (Dims{2, 2, 12, 8}));
    expect_logits_of_a_cache(model, cache, 12);
    EXPECT_EQ(model.make_cache(1).capacity, 16);
    EXPECT_EQ(model.make_cache(1, 100).capacity, 16);
    EXPECT_NE(error_of([&] {
                model.next_logits(token_ids(context, {2, 1}), cache);
              }).find("holds 12 positions; 13"),
              std::string::npos);
  }
}

TEST(Decoders, DocumentsInARowHaveTheBitsOfEachAlone) {
  const Context context = testing::context(2, KernelChoice::plain);
  for (const RotaryScaling scaling : {RotaryScaling::none, RotaryScaling::dynamic, RotaryScaling::longrope}) {
    SCOPED_TRACE(static_cast<int>(scaling));
    RotaryDecoder model(scaled_decoder(scaling));
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    const std::vector<AttentionSpan> rows[] = {{{0, 0, 5}, {0, 5, 14}, {1, 0, 16}},
                                               {{0, 0, 5}, {0, 5, 11}, {1, 2, 5}},
                                               {{0, 0, 7}, {0, 7, 16}, {1, 0, 10}, {1, 10, 16}}};
    for (const std::vector<AttentionSpan>& spans : rows)
      expect_bits_of_each_alone(model, token_ids(context, {2, 16}), documents_at(context, {2, 16}, spans));
  }
}

TEST(Decoders, DocumentsInARowHaveTheGradientsOfEachAlone) {
  const Context context = testing::context(2, KernelChoice::plain);
  const Tensor tokens = token_ids(context, {2, 16});
  const std::vector<AttentionSpan> spans = {{0, 0, 5}, {0, 5, 14}, {1, 0, 16}};
  const PackedDocuments documents = documents_at(context, {2, 16}, spans);
  for (const RotaryScaling scaling : {RotaryScaling::none, RotaryScaling::dynamic, RotaryScaling::longrope})
    for (const bool recompute : {false, true}) {
      RotaryDecoder model(scaled_decoder(scaling));
      model.recompute = recompute;
      std::vector<FlatBuffer> buffers = materialize(model, context);
      const auto gradients = [&](const auto& add_up) {
        for (FlatBuffer& buffer : buffers) buffer.zero_grad();
        Forward pass;
        for (const AttentionSpan& span : spans) add_up(span, pass);
        std::vector<double> all;
        for (const FlatBuffer& buffer : buffers)
          for (const double value : doubles(buffer.gradient)) all.push_back(value);
        return all;
      };
      const auto within = [](const Variable& x, const AttentionSpan& span) {
        return slice(slice(x, 0, span.row, span.row + 1), 1, span.begin, span.end);
      };
      const std::vector<double> packed = gradients([&](const AttentionSpan& span, Forward& pass) {
        backward(sum(square(within(model(tokens, pass, documents), span))));
      });
      const std::vector<double> each = gradients([&](const AttentionSpan& span, Forward& pass) {
        backward(sum(square(model(tokens_at(tokens, span), pass))));
      });
      EXPECT_LT(relative_error(packed, each), 1e-5) << static_cast<int>(scaling);
    }
}

// With dropout of the stream and of attention, so that masks are drawn again as they were.
TEST(Decoders, ComputedAgainHaveTheSameGradientsInLessMemory) {
  const Tensor tokens = token_ids(testing::context(1), {2, 16});
  const auto train = [&](bool recompute, bool drops) {
    DecoderOptions options = small_decoder();
    options.layers = 4;
    options.windowed = {false, true, false, true};
    if (drops) options.layer.dropout = options.layer.attention_dropout = 0.25;
    RotaryDecoder model(options);
    return step_of(model, recompute, tokens);
  };
  const DecoderStep again = train(true, true), kept = train(false, true);
  EXPECT_EQ(again.results, kept.results);
  EXPECT_LT(2 * again.kept, kept.kept);
  EXPECT_NE(again.results, train(false, false).results);
}

TEST(Decoders, TakeABlockOfTokensAndNoMore) {
  RotaryDecoder model(small_decoder());
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1));
  EXPECT_EQ(refusal_of_tokens(model, {2, 16}), "");
  EXPECT_EQ(refusal_of_tokens(model, {2, 17}), "the sequence reaches position 17, but the model's block is 16");
  EXPECT_NE(refusal_of_tokens(model, {16}).find("a decoder reads tokens (batch, time)"), std::string::npos);
}

TEST(Decoders, RefuseShapesThatAreNone) {
  const auto refusal = [](const auto& change) {
    DecoderOptions options = small_decoder();
    change(options);
    return error_of([&] { RotaryDecoder model(options); });
  };
  EXPECT_EQ(refusal([](DecoderOptions&) {}), "");
  EXPECT_EQ(refusal([](DecoderOptions& o) { o.layer.kv_heads = 3; }),
            "4 heads are not a multiple of 3 key/value heads");
  EXPECT_NE(refusal([](DecoderOptions& o) { o.layer.head_size = 7; }), "");
  EXPECT_NE(refusal([](DecoderOptions& o) { o.layer.hidden = 0; }).find("hidden size of at least 1"),
            std::string::npos);
  EXPECT_NE(refusal([](DecoderOptions& o) { o.layers = 0; }).find("of at least 1"), std::string::npos);
  EXPECT_EQ(refusal([](DecoderOptions& o) { o.layers = 3; }), "a decoder of 3 layers got windows of 2");
  EXPECT_NE(
      refusal([](DecoderOptions& o) { o.layer.attention_dropout = 1; }).find("attention dropout must be in [0, 1)"),
      std::string::npos);
}

// Tables of a dynamic scaling follow the length; what a short text gave before is what it gives afterwards.
TEST(Decoders, LongTextsDoNotChangeShortOnes) {
  const Context context = testing::context(1);
  DecoderOptions options = small_decoder();
  options.rotary.scaling = RotaryScaling::dynamic;
  options.rotary.factor = 4;
  options.rotary.max_positions = 8;
  RotaryDecoder model(options);
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  Forward pass;
  const auto logits = [&](std::int64_t time) { return doubles(model(token_ids(context, {1, time}), pass).value()); };
  const std::vector<double> before = logits(6), begin_of_long = logits(15);
  EXPECT_EQ(logits(6), before);
  EXPECT_EQ(logits(15), begin_of_long);
  EXPECT_GT(relative_error({begin_of_long.begin(), begin_of_long.begin() + std::ssize(before)}, before), 1e-4);
}

// Counted product by product: scores and sums of pairs that see each other, by heads of queries.
TEST(Decoders, OperationsOfATokenAreThoseOfItsProductsAndSixForOtherParameters) {
  for (const bool tied : {false, true}) {
    DecoderOptions options = small_decoder();
    options.tied = tied;
    RotaryDecoder model(options);
    const double width = 24, hidden = 40, heads = 32, keys = 16, vocabulary = 61, layers = 2;
    const double matrices =
        vocabulary * width + layers * (width * (heads + 2 * keys) + heads * width + 3 * width * hidden);
    const double others = layers * (2 * width + 2 * 8 + heads + 2 * keys) + width;
    const double full = 16 / 2.0, window = 3 - 3 * 3 / (2 * 16.0);
    const double pairs = 12 * heads * (full + window);
    EXPECT_DOUBLE_EQ(training_flops_of_token(options, count_parameters(model)), 6 * (matrices + others) + pairs);

    const Context context = testing::context(1);
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    const Tensor tokens = token_ids(context, {2, 16});
    const FlopCount count;
    Forward pass;
    backward(model.loss(tokens, tokens, pass).loss);
    const double causal = 16 * 17 / 2, windowed = 3 * 16 - 3;
    EXPECT_EQ(count.flops(), 3 * 2 * (32 * 2 * matrices / 2 + (causal + windowed) * 4 * heads)) << tied;
  }
}

}  // namespace
}  // namespace keel
