// The laws of modules, flat memory and generation, on a tiny GPT-2.

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "keel/autograd/flops.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/generation.h"
#include "keel/models/gpt.h"
#include "keel/nn/state.h"
#include "tests/models/decoder_laws.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using namespace testing;

TEST(Gpt, GenerationWithACacheGivesTheLogitsOfTheWholeSequence) {
  Gpt model(tiny_gpt());
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1));
  KeyValueCache cache = model.make_cache(2);
  expect_logits_of_a_cache(model, cache, 16);
}

TEST(Gpt, PackedDocumentsHaveTheBitsOfEachAlone) {
  const Context context = testing::context(2, KernelChoice::plain);
  // Three fill the first row up to two tokens of padding; another begins the second.
  const std::vector<AttentionSpan> spans = {{0, 0, 5}, {0, 5, 7}, {0, 7, 14}, {1, 0, 4}};
  const Tensor tokens = token_ids(context, {2, 16});
  const PackedDocuments packed = documents_at(context, {2, 16}, spans);
  const std::vector<std::int64_t> ids = tokens.to_vector<std::int64_t>();
  std::vector<std::int64_t> targets(32, -100);
  for (const AttentionSpan& span : spans)
    for (std::int64_t t = span.begin; t + 1 < span.end; ++t) targets[16 * span.row + t] = ids[16 * span.row + t + 1];
  constexpr double kTargets = 4 + 1 + 6 + 3;
  for (const bool recompute : {false, true}) {
    Gpt model(tiny_gpt());
    model.recompute = recompute;
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    expect_bits_of_each_alone(model, tokens, packed);
    Forward pass;
    const auto gradient_of = [&](const CrossEntropyLoss& of) {
      model.h[0].attn.c_attn.weight.variable().zero_grad();
      backward(of.loss);
      return doubles(model.h[0].attn.c_attn.weight.grad());
    };
    const std::vector<double> together =
        gradient_of(model.loss(tokens, from_values(context, targets, {2, 16}), pass, packed));
    std::vector<double> separate(together.size());
    for (const AttentionSpan& span : spans) {
      const Tensor alone = tokens_at(tokens, span);
      const std::int64_t learnt = alone.dim(1) - 1;
      const std::vector<double> own =
          gradient_of(model.loss(alone.slice(1, 0, learnt), alone.slice(1, 1, learnt + 1), pass));
      const double share = static_cast<double>(learnt) / kTargets;
      for (std::size_t i = 0; i < own.size(); ++i) separate[i] += share * own[i];
    }
    EXPECT_LT(relative_error(together, separate), 1e-5);
  }
}

TEST(Gpt, GenerationRunsPastTheBlockAndRepeatsForOneSeed) {
  const Context context = testing::context(1);
  Gpt model(tiny_gpt());
  std::vector<FlatBuffer> buffers = materialize(model, context);
  const std::vector<std::int64_t> prompt = {7, 8};
  const auto run = [&](std::uint64_t seed) {
    std::vector<std::int64_t> text;
    generate(model, prompt, {.tokens = 40, .temperature = 1, .top_k = 10, .seed = seed}, [&](std::int64_t token) {
      text.push_back(token);
      return true;
    });
    return text;
  };
  EXPECT_EQ(run(1).size(), 40u);
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Gpt, TheNamedSizesHaveTheirPublishedParameterCounts) {
  // 124,439,808 and 354,823,168: Radford et al.'s released checkpoints, tied head counted once.
  Gpt small(gpt_by_name("gpt2"));
  Gpt medium(gpt_by_name("gpt2-medium"));
  EXPECT_EQ(count_parameters(small), 124439808);
  EXPECT_EQ(count_parameters(medium), 354823168);
  // 774,030,080 and 1,557,611,200; heads are of 64 in all.
  Gpt large(gpt_by_name("gpt2-large"));
  Gpt xl(gpt_by_name("gpt2-xl"));
  EXPECT_EQ(count_parameters(large), 774030080);
  EXPECT_EQ(count_parameters(xl), 1557611200);
  for (const Gpt* model : {&small, &medium, &large, &xl}) EXPECT_EQ(model->options.width, 64 * model->options.heads);
  EXPECT_EQ(error_of([] { gpt_by_name("gpt3"); }),
            "unknown model 'gpt3'; known are gpt2, gpt2-medium, gpt2-large, gpt2-xl");
}

TEST(Gpt, BeginsWithThePublishedDeviations) {
  GptOptions options = tiny_gpt();
  options.width = 64;
  options.vocabulary = 300;
  options.block = 100;
  Gpt model(options);
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1));
  for (const auto& [name, tensor] : state_dict(model)) {
    const std::vector<double> values = doubles(tensor);
    double square = 0;
    for (const double value : values) square += value * value / static_cast<double>(values.size());
    const bool is_norm = name.find("ln_") != std::string::npos, is_bias = name.ends_with("bias");
    const bool is_into_stream = name.find("c_proj") != std::string::npos;
    const double deviation = is_bias ? 0 : is_norm ? 1 : is_into_stream ? 0.02 / std::sqrt(2.0 * options.layers) : 0.02;
    EXPECT_NEAR(std::sqrt(square), deviation, 0.05 * deviation) << name;
  }
}

TEST(Gpt, TakesABlockOfTokensAndNoMore) {
  const Context context = testing::context(1);
  Gpt model(tiny_gpt());
  const std::vector<FlatBuffer> buffers = materialize(model, context);
  EXPECT_EQ(refusal_of_tokens(model, {2, 16}), "");
  EXPECT_EQ(refusal_of_tokens(model, {2, 17}), "the sequence reaches position 17, but the model's block is 16");
  EXPECT_NE(refusal_of_tokens(model, {16}).find("a GPT reads tokens (batch, time)"), std::string::npos);
  KeyValueCache cache = model.make_cache(2);
  const auto read = [&](std::int64_t time) {
    return error_of([&] { model.next_logits(zeros(context, {2, time}, DType::i64), cache); });
  };
  EXPECT_EQ(read(15), "");
  EXPECT_EQ(read(2), "the sequence reaches position 17, but the model's block is 16");
  EXPECT_EQ(read(1), "");
  EXPECT_EQ(cache.lengths, (std::vector<std::int64_t>{16, 16}));
  KeyValueCache small = model.make_cache(1);
  small.capacity = 4;
  small.lengths = {2};
  const Variable three(zeros(context, {1, 3, 32}));
  EXPECT_EQ(error_of([&] { model.h[0].attn(three, CachedRows(small), 0); }),
            "the key/value cache holds 4 positions; 5 are needed");
  small.lengths = {1};
  EXPECT_EQ(error_of([&] { model.h[0].attn(three, CachedRows(small), 0); }), "");
}

TEST(Gpt, HasATokenAPositionAndALayerAtLeast) {
  const auto refusal = [](std::int64_t vocabulary, std::int64_t block, int layers) {
    return error_of(
        [&] { Gpt model({.vocabulary = vocabulary, .block = block, .layers = layers, .heads = 1, .width = 2}); });
  };
  EXPECT_EQ(refusal(1, 1, 1), "");
  for (const auto& [vocabulary, block, layers] : {std::tuple{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    EXPECT_NE(refusal(vocabulary, block, layers).find("of at least 1"), std::string::npos);
}

// With dropout, so that masks are drawn again as they were.
TEST(Gpt, ComputedAgainHasTheSameGradientsInLessMemory) {
  const Tensor tokens = token_ids(testing::context(1), {2, 4});
  const auto train = [&](bool recompute, double dropout, double attention_dropout) {
    GptOptions options = tiny_gpt();
    options.dropout = dropout;
    options.attention_dropout = attention_dropout;
    options.layers = 3;
    Gpt model(options);
    return step_of(model, recompute, tokens);
  };
  const DecoderStep again = train(true, 0.25, 0.4), kept = train(false, 0.25, 0.4);
  EXPECT_EQ(again.results, kept.results);
  EXPECT_LT(2 * again.kept, kept.kept);
  EXPECT_NE(kept.results, train(false, 0, 0.4).results);
  EXPECT_NE(kept.results, train(false, 0.25, 0).results);
}

TEST(Gpt, DropsWeightsOfAttentionInTrainingAlone) {
  const Context context = testing::context(1);
  GptOptions options = tiny_gpt();
  options.attention_dropout = 0.5;
  Gpt model(options), plain(tiny_gpt());
  const std::vector<FlatBuffer> buffers = materialize(model, context), others = materialize(plain, context);
  const Tensor tokens = from_values<std::int64_t>(context, {3, 1, 4, 1, 5, 9, 2, 6}, {2, 4});
  const auto ids = [&](const std::vector<std::int64_t>& samples) {
    return from_values(context, samples, {static_cast<std::int64_t>(samples.size())});
  };
  const auto logits_of = [&](Gpt& of, Forward pass) { return doubles(of(tokens, pass).value()); };
  const std::vector<double> evaluated = logits_of(plain, {});
  EXPECT_EQ(logits_of(model, {}), evaluated);
  const std::vector<double> trained =
      logits_of(model, {.training = true, .random = {.seed = 3}, .sample_ids = ids({0, 1})});
  EXPECT_NE(trained, evaluated);
  EXPECT_NE(logits_of(model, {.training = true, .random = {.seed = 4}, .sample_ids = ids({0, 1})}), trained);
  EXPECT_NE(logits_of(model, {.training = true, .random = {.seed = 3}, .sample_ids = ids({0, 2})}), trained);
  EXPECT_NE(error_of([&] { logits_of(model, {.training = true, .random = {}, .sample_ids = {}}); }).find("sample ids"),
            std::string::npos);
  for (const double probability : {-0.1, 1.0}) {
    options.attention_dropout = probability;
    EXPECT_NE(error_of([&] { Gpt refused(options); }).find("attention dropout must be in [0, 1)"), std::string::npos);
  }
}

// Each call of a pass has masks of its own; one that drops nothing draws none, so that other masks stay as they were.
TEST(AttentionDropoutOfAPass, TakesAKeyOnlyWhereItDrops) {
  const Context context = testing::context(1);
  Forward pass{.training = true, .random = {.seed = 3, .step = 5}, .sample_ids = zeros(context, {2}, DType::i64)};
  EXPECT_EQ(attention_dropout(0, pass).probability, 0);
  const AttentionDropout first = attention_dropout(0.25, pass), second = attention_dropout(0.25, pass);
  EXPECT_EQ(first.probability, 0.25);
  EXPECT_EQ(first.sample_ids.shape(), (Dims{2}));
  EXPECT_EQ(first.key.seed, 3u);
  EXPECT_EQ(first.key.step, 5u);
  EXPECT_EQ(first.key.call, 0u);
  EXPECT_EQ(second.key.call, 1u);
  Forward evaluation = pass.evaluating();
  EXPECT_EQ(attention_dropout(0.25, evaluation).probability, 0);
  EXPECT_EQ(evaluation.random.next_call, 2u);
}

// Counted product by product: forward, for the gradient of each operand; causal attention over half of the pairs.
TEST(Gpt, OperationsOfATokenAreThoseOfItsProductsAndSixForOtherParameters) {
  struct Case {
    const char* name;
    double operations;
  };
  for (const Case& c : {Case{"gpt2", 803478528}, Case{"gpt2-xl", 9817977600}}) {
    GptOptions options = gpt_by_name(c.name);
    options.vocabulary = 50304;
    Gpt model(options);
    const double width = static_cast<double>(options.width), time = static_cast<double>(options.block),
                 layers = options.layers, vocabulary = static_cast<double>(options.vocabulary);
    const auto product = [](double m, double n, double k) { return 3 * 2 * m * n * k; };
    double all = product(1, vocabulary, width);
    for (const double columns : {3 * width, width, 4 * width}) all += layers * product(1, columns, width);
    all += layers * product(1, width, 4 * width);
    all += layers * 2 * product(1, time / 2, width);  // scores, and the sum of values
    const double biases = layers * (3 + 1 + 4 + 1) * width, norms = (2 * layers + 1) * 2 * width;
    all += 6 * (biases + norms + time * width);
    EXPECT_EQ(training_flops_of_token(options, count_parameters(model)), all) << c.name;
    EXPECT_EQ(all, c.operations) << c.name;
  }
}

// What a run's records say; norms, biases and look-ups multiply next to nothing and are left out.
TEST(Gpt, CountsTheProductsOfItsMatricesAndOfPairsThatSeeEachOther) {
  const Context context = testing::context(1);
  const Tensor tokens = from_values<std::int64_t>(context, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {2, 5});
  for (const bool recompute : {false, true}) {
    Gpt model(tiny_gpt());
    model.recompute = recompute;
    const std::vector<FlatBuffer> buffers = materialize(model, context);
    const FlopCount count;
    Forward pass;
    const CrossEntropyLoss loss = model.loss(tokens, tokens, pass);
    backward(loss.loss);
    const double width = 32, layers = 2, matrices = 61 * width + layers * 12 * width * width,
                 pairs = 2 * (1 + 2 + 3 + 4 + 5);
    EXPECT_EQ(count.flops(), 3 * (10 * 2 * matrices + layers * pairs * 4 * width)) << recompute;
  }
}

TEST(FlatBuffer, MemoryByPurposeEqualsTheFormula) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Context context = testing::context(1);
    Gpt model(tiny_gpt());
    const std::vector<FlatBuffer> buffers = materialize(model, context, {.policy = PrecisionPolicy::of(dtype)});
    std::size_t padded = 0, root = 0;
    for (const FlatBuffer& buffer : buffers) {
      padded += static_cast<std::size_t>(buffer.padded);
      if (buffer.unit.empty()) root += static_cast<std::size_t>(buffer.padded);
    }
    const std::size_t size = size_of(dtype);
    const MemoryReport memory = context.memory();
    EXPECT_EQ(memory[Purpose::parameter].current, padded * size);
    EXPECT_EQ(memory[Purpose::gradient].current,
              (padded - root) * size + root * 4);  // the tied head accumulates in fp32
    EXPECT_EQ(memory[Purpose::optimizer].current, dtype == DType::bf16 ? padded * 4 : 0);
  }
}

TEST(FlatBuffer, ATiedParameterHasOnePlaceInTheRootUnit) {
  Gpt model(tiny_gpt());
  const std::vector<FlatBuffer> buffers = materialize(model, testing::context(1));
  std::set<std::string> names;
  for (const FlatBuffer& buffer : buffers)
    for (const Segment& segment : buffer.segments) {
      EXPECT_TRUE(names.insert(segment.name).second) << segment.name;
      if (segment.name == "wte.weight") { EXPECT_EQ(buffer.unit, ""); }
    }
  EXPECT_FALSE(names.contains("lm_head.weight"));
  EXPECT_EQ(buffers.size(), 3u);
}

TEST(State, WeightsOfAnotherModelAreRefusedAndNothingChanges) {
  const Context context = testing::context(1);
  Gpt model(tiny_gpt());
  std::vector<FlatBuffer> buffers = materialize(model, context);
  const std::vector<double> before = doubles(buffers[0].values);
  NamedTensors state = master_state_dict(buffers);
  for (auto& [name, tensor] : state) tensor = kernels::full(context, tensor.shape(), 2);
  state.pop_back();
  EXPECT_THROW(load_state(model, buffers, state), Error);
  EXPECT_EQ(doubles(buffers[0].values), before);
}

}  // namespace
}  // namespace keel
