// Generation against a plain one, which reads its whole window again for every token.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/kernels/elementwise.h"
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

Text generate_plainly(const Gpt& model, Text text, const SamplingOptions& options) {
  const std::int64_t block = model.options.block, prompt = std::ssize(text);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (std::ssize(text) - begin > block) begin = std::ssize(text) - (i == 0 ? block : (block + 1) / 2);
    const Text window(text.begin() + begin, text.end());
    Forward pass;
    const Tensor logits =
        model(from_values(model.wte.weight.value().context(), window, {1, std::ssize(window)}), pass).value();
    const std::int64_t last = logits.dim(1) - 1;
    text.push_back(draw(doubles(logits.slice(1, last, last + 1)), options, static_cast<std::uint64_t>(i)));
  }
  return {text.begin() + prompt, text.end()};
}

Text generated(const Gpt& model, const Text& prompt, const SamplingOptions& options) {
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
                                             {.tokens = 20, .temperature = 5, .top_k = 0}}) {
        Text text(static_cast<std::size_t>(prompt));
        for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int64_t>(i * i % 23);
        EXPECT_EQ(generated(model, text, options), generate_plainly(model, text, options))
            << "block " << block << ", prompt of " << prompt << ", temperature " << options.temperature;
      }
  }
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
  for (const SamplingOptions& options : {SamplingOptions{.tokens = -1}, {.temperature = -0.5}, {.top_k = -1}})
    EXPECT_NE(error_of([&] { generated(model, prompt, options); }).find("must not be negative"), std::string::npos);
}

}  // namespace
}  // namespace keel
