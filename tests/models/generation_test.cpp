// Generation against a plain one, which reads its whole window again for every token.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/kernels/elementwise.h"
#include "keel/models/decoder.h"
#include "keel/models/generation.h"
#include "keel/models/gpt.h"
#include "keel/nn/flat_buffer.h"
#include "keel/runtime/random.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

using Text = std::vector<std::int64_t>;

GptOptions small_gpt(std::int64_t block) {
  return {.vocabulary = 23, .block = block, .layers = 2, .heads = 2, .width = 16, .dropout = 0, .bias = true};
}

// One of the k likeliest tokens, with its probability at this temperature; equal ones by their numbers.
std::int64_t draw(const std::vector<double>& logits, const SamplingOptions& options, std::uint64_t i) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0 && options.top_k < std::ssize(order)) order.resize(static_cast<std::size_t>(options.top_k));
  const auto weight = [&](std::int64_t token) {
    return std::exp((logit(token) - logit(order[0])) / options.temperature);
  };
  double total = 0;
  for (const std::int64_t token : order) total += weight(token);
  double left = to_uniform(stream_word(key_of(options.seed, "generate"), i));
  for (const std::int64_t token : order) {
    left -= weight(token) / total;
    if (left < 0) return token;
  }
  return order.back();
}

Text generate_plainly(const CausalModel& model, Text text, const SamplingOptions& options) {
  const std::int64_t block = model.block(), prompt = std::ssize(text);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (std::ssize(text) - begin > block) begin = std::ssize(text) - (i == 0 ? block : (block + 1) / 2);
    const Text window(text.begin() + begin, text.end());
    Forward pass;
    const Tensor logits = model(from_values(model.context(), window, {1, std::ssize(window)}), pass).value();
    const std::int64_t last = logits.dim(1) - 1;
    std::vector<double> own = doubles(logits.slice(1, last, last + 1));
    for (std::size_t token = 0; token < own.size(); ++token)
      if (std::ranges::find(text, static_cast<std::int64_t>(token)) != text.end())
        own[token] *= own[token] < 0 ? options.repetition_penalty : 1 / options.repetition_penalty;
    text.push_back(draw(own, options, static_cast<std::uint64_t>(i)));
  }
  return {text.begin() + prompt, text.end()};
}

Text generated(const CausalModel& model, const Text& prompt, const SamplingOptions& options) {
  Text text;
  generate(model, prompt, options, [&](std::int64_t token) {
    text.push_back(token);
    return true;
  });
  return text;
}

TEST(Generation, DrawsWhatAPlainOneDrawsThatReadsItsWholeWindowAgain) {
  const Context context = testing::context(1);
  for (const std::int64_t block : {7, 8}) {
    Gpt model(small_gpt(block));
    // Far from uniform, so that temperature and top_k matter.
    const std::vector<FlatBuffer> buffers = materialize(model, context, {.seed = 3});
    for (const FlatBuffer& buffer : buffers)
      kernels::copy_into(buffer.values, testing::uniform_tensor(context, buffer.values.shape(), 4));
    for (const std::int64_t prompt : {1, 5, 7, 8, 9, 20})
      for (const SamplingOptions& options : {SamplingOptions{.tokens = 20, .temperature = 0},
                                             {.tokens = 20, .temperature = 1, .top_k = 1},
                                             {.tokens = 20, .temperature = 3, .top_k = 3, .seed = 9},
                                             {.tokens = 20, .temperature = 2, .top_k = 1000, .seed = 2},
                                             {.tokens = 20, .temperature = 1e-3},
                                             {.tokens = 20, .temperature = 5, .top_k = 0},
                                             {.tokens = 20, .temperature = 0, .repetition_penalty = 1.7},
                                             {.tokens = 20, .temperature = 2, .repetition_penalty = 0.6}}) {
        Text text(static_cast<std::size_t>(prompt));
        for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int64_t>(i * i % 23);
        EXPECT_EQ(generated(model, text, options), generate_plainly(model, text, options))
            << "block " << block << ", prompt of " << prompt << ", temperature " << options.temperature;
      }
  }
}

// Far from uniform.
std::vector<FlatBuffer> spread(Module& model, const Context& context) {
  std::vector<FlatBuffer> buffers = materialize(model, context, {.seed = 3});
  for (const FlatBuffer& buffer : buffers)
    kernels::copy_into(buffer.values, testing::uniform_tensor(context, buffer.values.shape(), 4));
  return buffers;
}

// As a Qwen3 whose second layer has a window.
DecoderOptions small_windowed(RotaryScaling scaling) {
  DecoderOptions options;
  options.vocabulary = 23;
  options.block = 12;
  options.layers = 2;
  options.layer = {.width = 16, .hidden = 24, .heads = 4, .kv_heads = 2, .head_size = 4};
  options.layer.head_norms = true;
  options.layer.window = 3;
  options.windowed = {false, true};
  options.rotary.max_positions = scaling == RotaryScaling::none ? 12 : 5;
  options.rotary.scaling = scaling;
  options.rotary.factor = scaling == RotaryScaling::none ? 1 : 2;
  return options;
}

std::vector<Text> prompts_of_many_lengths() {
  std::vector<Text> prompts;
  for (const std::int64_t length : {5, 1, 12, 5, 20, 7, 11}) {
    Text& prompt = prompts.emplace_back();
    for (std::int64_t i = 0; i < length; ++i) prompt.push_back((i * i + 3 * std::ssize(prompts)) % 23);
  }
  return prompts;
}

TEST(Generation, OfDecodersWithWindowsIsThatOfTheWholeTextReadAgain) {
  const Context context = testing::context(1);
  RotaryDecoder model(small_windowed(RotaryScaling::none));
  const std::vector<FlatBuffer> buffers = spread(model, context);
  for (const Text& prompt : prompts_of_many_lengths())
    for (const SamplingOptions& options :
         {SamplingOptions{.tokens = 20, .temperature = 0}, {.tokens = 20, .temperature = 3, .top_k = 3, .seed = 9}})
      EXPECT_EQ(generated(model, prompt, options), generate_plainly(model, prompt, options)) << prompt.size();
}

// Products of keel's own kernels have the same bits for a row whatever other rows there are.
void expect_rows_alone(const CausalModel& model) {
  const std::vector<Text> prompts = prompts_of_many_lengths();
  for (const SamplingOptions& options :
       {SamplingOptions{.tokens = 25, .temperature = 0},
        {.tokens = 25, .temperature = 3, .top_k = 9, .seed = 5, .top_p = 0.9, .repetition_penalty = 1.3},
        {.tokens = 25, .temperature = 2, .min_p = 0.01, .end_tokens = {4, 9}, .first_row = 6}}) {
    std::vector<Text> all(prompts.size());
    std::vector<std::size_t> order;
    generate_batch(model, prompts, options, [&](std::size_t i, std::int64_t token) {
      all[i].push_back(token);
      order.push_back(i);
      return all[i].size() < 15 || i % 2 == 0;
    });
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SamplingOptions own = options;
      own.first_row += i;
      own.tokens = i % 2 == 0 ? options.tokens : 15;
      EXPECT_EQ(all[i], generated(model, prompts[i], own)) << "row " << i << " of " << prompts[i].size();
      EXPECT_TRUE(!options.end_tokens.empty() || std::ssize(all[i]) == own.tokens);
      for (const std::int64_t end : options.end_tokens) EXPECT_EQ(std::ranges::count(all[i], end), 0);
    }
    EXPECT_TRUE(std::ranges::is_sorted(std::span(order).first(options.end_tokens.empty() ? 7 : 1)));
  }
}

TEST(Generation, EachRowOfABatchHasTheTokensThatItHasAlone) {
  const Context context = testing::context(2, KernelChoice::plain);
  Gpt gpt(small_gpt(12));
  const std::vector<FlatBuffer> buffers = spread(gpt, context);
  expect_rows_alone(gpt);
  for (const RotaryScaling scaling : {RotaryScaling::none, RotaryScaling::dynamic}) {
    RotaryDecoder decoder(small_windowed(scaling));
    const std::vector<FlatBuffer> own = spread(decoder, context);
    expect_rows_alone(decoder);
  }
}

TEST(Generation, RowsOfACacheHaveTheLogitsThatEachHasAlone) {
  const Context context = testing::context(2, KernelChoice::plain);
  RotaryDecoder model(small_windowed(RotaryScaling::none));
  const std::vector<FlatBuffer> buffers = spread(model, context);
  const auto tokens = [&](std::int64_t rows, std::int64_t time) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < rows * time; ++i) ids.push_back(i * i * 5 % 23);
    return from_values(context, ids, {rows, time});
  };
  KeyValueCache cache = model.make_cache(4, 12);
  model.next_logits(tokens(1, 6), CachedRows(cache, {2}));
  model.next_logits(tokens(2, 3), CachedRows(cache, {3, 0}));
  EXPECT_EQ(cache.lengths, (std::vector<std::int64_t>{3, 0, 6, 3}));
  const Tensor together = model.next_logits(tokens(3, 2), CachedRows(cache, {2, 3, 0}));
  EXPECT_EQ(cache.lengths, (std::vector<std::int64_t>{5, 0, 8, 5}));
  KeyValueCache alone = model.make_cache(1, 12);
  model.next_logits(tokens(1, 6), alone);
  EXPECT_EQ(doubles(model.next_logits(tokens(3, 2).slice(0, 0, 1), alone)), doubles(together.slice(0, 0, 1)));
  const auto refusal = [&](std::vector<std::int64_t> rows) {
    return error_of([&] { model.next_logits(tokens(1, 1), CachedRows(cache, std::move(rows))); });
  };
  EXPECT_EQ(refusal({4}), "row 4 is not in a cache of 4");
  EXPECT_EQ(refusal({1, 1}), "row 1 of a cache is read twice in one pass");
  EXPECT_EQ(refusal({}), "a pass reads at least one row of a cache");
  EXPECT_EQ(refusal({0, 3}), "a pass of 1 rows reads 2 rows of a cache");
  EXPECT_EQ(refusal({1}), "");
}

TEST(Generation, StopsWhereItIsToldToAndTakesWhatMakesSenseAlone) {
  const Context context = testing::context(1);
  Gpt model(small_gpt(8));
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  const Text prompt = {1};
  int called = 0;
  generate(model, prompt, {.tokens = 20}, [&](std::int64_t) { return ++called < 3; });
  EXPECT_EQ(called, 3);
  EXPECT_TRUE(generated(model, prompt, {.tokens = 0}).empty());
  EXPECT_NE(error_of([&] { generated(model, {}, {}); }).find("at least one token"), std::string::npos);
  EXPECT_NE(error_of([&] {
              generated(model, {1, 23}, {});
            }).find("token 23 of the prompt is outside"),
            std::string::npos);
  EXPECT_NE(error_of([&] { generated(model, prompt, {.top_p = 0}); }).find("top_p is a share"), std::string::npos);
  generate_batch(model, {}, {}, [](std::size_t, std::int64_t) { return true; });
  for (const SamplingOptions& options : {SamplingOptions{.tokens = -1}, {.temperature = -0.5}, {.top_k = -1}})
    EXPECT_NE(error_of([&] { generated(model, prompt, options); }).find("must not be negative"), std::string::npos);
}

}  // namespace
}  // namespace keel
