// LoRA's laws on small models of each kind: what it changes at first (nothing), what it is trained by, and what it
// merges into.

#include "keel/models/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/select.h"
#include "keel/nn/state.h"
#include "keel/runtime/json.h"
#include "tests/models/adapted_models.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::adapted_decoder;
using testing::adapted_encoder;
using testing::adapted_gpt;
using testing::AdaptedModel;
using testing::decoder_with_head;
using testing::doubles;
using testing::relative_error;
using testing::token_numbers;

const std::map<std::string, std::function<AdaptedModel()>>& adapted_models() {
  static const std::map<std::string, std::function<AdaptedModel()>> models = {
      {"gpt", [] { return adapted_gpt(); }},
      {"gpt without biases", [] { return adapted_gpt(false); }},
      {"llama", [] { return adapted_decoder(); }},
      {"bert", [] { return adapted_encoder(); }}};
  return models;
}

std::vector<double> outputs_of(const AdaptedModel& model, const Context& context) {
  Forward pass;
  return doubles(model.output(token_numbers(context, {2, 7}, 3), pass).value());
}

// Numbers for every B, which begin as 0.
void fill_adapters(Module& model, const Context& context) {
  std::uint64_t seed = 100;
  for (const auto& [name, values] : state_dict(model))
    if (name.ends_with("lora_B.weight"))
      kernels::copy_into(values, testing::uniform_tensor(context, values.shape(), ++seed, values.dtype(), -0.3, 0.3));
}

TEST(Lora, BeginsAsTheModelWithoutItToTheBit) {
  for (const auto& [name, make] : adapted_models())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Context context = testing::context(1);
      const AdaptedModel plain = make(), adapted = make();
      add_lora(*adapted.module, {.rank = 3}, adapted.naming);
      const MaterializeOptions options{.policy = PrecisionPolicy::of(dtype)};
      const auto of_plain = materialize(*plain.module, context, options),
                 of_adapted = materialize(*adapted.module, context, options);
      EXPECT_TRUE(outputs_of(plain, context) == outputs_of(adapted, context)) << name << ' ' << dtype;
      fill_adapters(*adapted.module, context);
      EXPECT_GT(relative_error(outputs_of(adapted, context), outputs_of(plain, context)), 1e-3) << name;
    }
}

TEST(Lora, IsTheModelWhoseWeightsHaveTheProducts) {
  for (const auto& [name, make] : adapted_models())
    for (const bool stabilised : {false, true}) {
      const Context context = testing::context(1);
      const AdaptedModel merged = make(), adapted = make();
      const LoraOptions lora = {.rank = 3, .alpha = 5, .rank_stabilised = stabilised};
      add_lora(*adapted.module, lora, adapted.naming);
      const MaterializeOptions options{.policy = PrecisionPolicy::of(DType::f64)};
      const auto of_merged = materialize(*merged.module, context, options),
                 of_adapted = materialize(*adapted.module, context, options);
      fill_adapters(*adapted.module, context);
      std::map<std::string, Tensor> numbers, weights;
      for (const auto& [path, values] : state_dict(*adapted.module)) numbers.emplace(path, values);
      for (const auto& [path, values] : state_dict(*merged.module)) weights.emplace(path, values);
      std::size_t products = 0;
      for (const HubTensor& tensor : hub_tensors(*adapted.module, adapted.naming)) {
        if (!tensor.low_rank) continue;
        EXPECT_DOUBLE_EQ(tensor.low_rank->scale, stabilised ? 5 / std::sqrt(3.0) : 5.0 / 3);
        const std::vector<double> a = doubles(numbers.at(tensor.low_rank->a)),
                                  b = doubles(numbers.at(tensor.low_rank->b));
        const std::int64_t rows = numbers.at(tensor.low_rank->b).dim(0),
                           columns = numbers.at(tensor.low_rank->a).dim(1);
        auto* const weight = weights.at(tensor.parameter).data<double>() + tensor.first_row * columns;
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            for (std::int64_t r = 0; r < 3; ++r)
              weight[i * columns + j] += tensor.low_rank->scale * b[static_cast<std::size_t>(i * 3 + r)] *
                                         a[static_cast<std::size_t>(r * columns + j)];
        ++products;
      }
      EXPECT_EQ(products, name == "llama" ? 14u : name == "bert" ? 12u : 8u) << name;
      // Factors of products are numbers of fp32.
      EXPECT_LT(relative_error(outputs_of(adapted, context), outputs_of(merged, context)), 1e-7) << name;
    }
}

// By all logits, by the loss that never has all of them, at positions and with a cache.
TEST(Lora, OfAHeadIsInEveryLogitAndEveryLoss) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::f64, DType::f32})
    for (const double dropout : {0.0, 0.5}) {
      const auto decoder = decoder_with_head();
      const HubNaming naming = find_model("llama")->naming;
      add_lora(*decoder, {.rank = 3, .dropout = dropout, .targets = {"lm_head"}}, naming);
      const auto buffers = materialize(*decoder, context, {.policy = PrecisionPolicy::of(dtype)});
      const Tensor tokens = token_numbers(context, {2, 7}, 3), targets = token_numbers(context, {2, 7}, 4);
      const Forward begin{.training = dropout > 0,
                          .random = {.seed = 5},
                          .sample_ids = from_values(context, std::vector<std::int64_t>{0, 1}, {2}),
                          .dtype = dtype};
      Forward first = begin, second = begin, third = begin, pass = begin;  // each draws the same masks
      const std::vector<double> still = doubles((*decoder)(tokens, first).value());
      fill_adapters(*decoder, context);
      const double bound = dtype == DType::f64 ? 1e-7 : 1e-4;  // factors of products are numbers of fp32
      const auto gradients_of = [&](const Variable& loss) {
        backward(loss);
        std::vector<double> all = {loss.value().item()};
        for_each_parameter(*decoder, [&](const std::string&, Parameter& parameter) {
          if (!parameter.trainable()) return;
          for (const double value : doubles(parameter.grad())) all.push_back(value);
          kernels::copy_into(parameter.grad(), kernels::full(context, parameter.shape(), 0, dtype));
        });
        return all;
      };
      const Variable logits = (*decoder)(tokens, second);
      EXPECT_GT(relative_error(doubles(logits.value()), still), 1e-2);
      const std::vector<double> by_logits = gradients_of(cross_entropy(logits, targets).loss);
      EXPECT_EQ(by_logits.size(), 1u + 3 * 24 + 61 * 3);
      EXPECT_LT(relative_error(gradients_of(decoder->loss(tokens, targets, third).loss), by_logits), bound) << dtype;
      if (dropout > 0) continue;
      const Tensor places = from_values(context, std::vector<std::int64_t>{6, 13}, {2});
      const std::vector<double> last = doubles(kernels::index_select(logits.value().view({14, 61}), 0, places));
      EXPECT_LT(relative_error(doubles(decoder->logits_at(places, tokens, pass).value()), last), bound);
      KeyValueCache cache = decoder->make_cache(2);
      EXPECT_LT(relative_error(doubles(decoder->next_logits(tokens, cache)), last), bound);
    }
}

TEST(Lora, OfAHeadIsTheModelWhoseHeadHasTheProduct) {
  const Context context = testing::context(1);
  const auto merged = decoder_with_head(), adapted = decoder_with_head();
  const HubNaming naming = find_model("llama")->naming;
  add_lora(*adapted, {.rank = 3, .alpha = 5, .targets = {"lm_head"}}, naming);
  const MaterializeOptions options{.policy = PrecisionPolicy::of(DType::f64)};
  const auto of_merged = materialize(*merged, context, options), of_adapted = materialize(*adapted, context, options);
  fill_adapters(*adapted, context);
  const LowRankAdapter& low = adapted->lm_head.adapters.front();
  const std::vector<double> a = doubles(low.a.value()), b = doubles(low.b.value());
  Tensor weight = merged->lm_head.weight.value();
  for (std::size_t i = 0; i < 61; ++i)
    for (std::size_t j = 0; j < 24; ++j)
      for (std::size_t r = 0; r < 3; ++r) weight.data<double>()[i * 24 + j] += 5.0 / 3 * b[i * 3 + r] * a[r * 24 + j];
  const Tensor tokens = token_numbers(context, {2, 7}, 3), targets = token_numbers(context, {2, 7}, 4);
  Forward pass;
  pass.dtype = DType::f64;
  EXPECT_LT(relative_error(doubles((*adapted)(tokens, pass).value()), doubles((*merged)(tokens, pass).value())), 1e-7);
  EXPECT_NEAR(adapted->loss(tokens, targets, pass).loss.value().item(),
              merged->loss(tokens, targets, pass).loss.value().item(), 1e-6);
  const std::vector<HubTensor> tensors = hub_tensors(*adapted, naming);
  const auto head = std::ranges::find(tensors, "lm_head.weight", &HubTensor::name);
  ASSERT_NE(head, tensors.end());
  ASSERT_TRUE(head->low_rank.has_value());
  EXPECT_EQ(head->low_rank->a, "lm_head.lora_A.weight");
  const HubNames names = adapter_names(*adapted, naming);
  ASSERT_EQ(names.tensors.size(), 2u);
  EXPECT_EQ(names.tensors[0].name, "base_model.model.lm_head.lora_A.weight");
}

// A head of its own, or one that is the embedding: then either name trains the one matrix.
TEST(Lora, TrainsHeadsAndEmbeddingsAsWholes) {
  struct Case {
    bool tied;
    std::vector<std::string> named;
    std::set<std::string> trained;
    std::vector<std::string> saved;
  };
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  const std::vector<std::string> both = {"model.embed_tokens", "lm_head"};
  for (const Case& each :
       {Case{false, {"lm_head"}, {head}, {"lm_head"}},
        Case{false, {"embed_tokens"}, {embedding}, {"model.embed_tokens"}},
        Case{false, {"embed_tokens", "lm_head"}, {embedding, head}, both},
        Case{true, {"embed_tokens"}, {embedding, head}, both}, Case{true, {"lm_head"}, {embedding, head}, both},
        Case{true, {"model.embed_tokens", "lm_head"}, {embedding, head}, both}}) {
    const auto decoder = decoder_with_head(each.tied);
    const HubNaming naming = find_model("llama")->naming;
    const LoraOptions lora = {.rank = 2, .targets = {"all-linear"}, .trained = each.named};
    add_lora(*decoder, lora, naming);
    std::set<std::string> trained;
    for_each_parameter(*decoder, [&](const std::string& path, Parameter& parameter) {
      if (parameter.trainable() && path.find(".lora_") == std::string::npos) trained.insert(path);
    });
    EXPECT_EQ(trained, each.trained);
    EXPECT_TRUE(decoder->lm_head.adapters.empty());
    const Json config = Json::parse(adapter_config(*decoder, lora, naming, {}));
    std::vector<std::string> saved;
    for (const Json& name : config.at("modules_to_save").items()) saved.push_back(name.string());
    EXPECT_EQ(saved, each.saved);
  }
  const AdaptedModel gpt = adapted_gpt();
  const LoraOptions lora = {.rank = 2, .targets = {"c_attn"}, .trained = {"transformer.wte"}};
  add_lora(*gpt.module, lora, gpt.naming);
  const Json config = Json::parse(adapter_config(*gpt.module, lora, gpt.naming, {}));
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["transformer.wte","lm_head"])");
  const HubNames names = adapter_names(*gpt.module, gpt.naming);
  EXPECT_EQ(names.tensors.back().name, "base_model.model.transformer.wte.weight");
  EXPECT_EQ(names.tensors.back().also, std::vector<std::string>{"base_model.model.lm_head.weight"});
}

TEST(Lora, GivesGradientsToAdaptersAndToWhatIsNamed) {
  const Context context = testing::context(1);
  const AdaptedModel model = adapted_encoder();
  const LoraOptions lora = with_heads({.rank = 2, .targets = {"query", "value"}}, *model.module, model.naming);
  EXPECT_EQ(lora.trained, (std::vector<std::string>{"bert.pooler.dense", "classifier"}));
  add_lora(*model.module, lora, model.naming);
  const auto buffers = materialize(*model.module, context);
  fill_adapters(*model.module, context);
  Forward pass;
  backward(mean(mul(model.output(token_numbers(context, {2, 7}, 3), pass),
                    model.output(token_numbers(context, {2, 7}, 4), pass))));
  std::set<std::string> with_gradient;
  for_each_parameter(*model.module, [&](const std::string& path, Parameter& parameter) {
    EXPECT_EQ(parameter.variable().requires_grad(), parameter.trainable()) << path;
    if (!parameter.trainable()) return;
    with_gradient.insert(path);
    double sum = 0;
    for (const double value : doubles(parameter.grad())) sum += std::abs(value);
    EXPECT_GT(sum, 0) << path;
  });
  EXPECT_EQ(with_gradient.size(), 2u * 2 * 2 + 4);
  EXPECT_TRUE(with_gradient.contains("classifier.bias"));
  for (const FlatBuffer& buffer : buffers) EXPECT_EQ(buffer.gradient.defined(), buffer.trainable);
}

TEST(Lora, DropsWhatAdaptersReadAndNothingElse) {
  const Context context = testing::context(1);
  const AdaptedModel model = adapted_gpt();
  add_lora(*model.module, {.rank = 2, .dropout = 0.5, .targets = {"attn.c_attn", "c_fc"}}, model.naming);
  const auto buffers = materialize(*model.module, context);
  const auto trained = [&](std::uint64_t seed) {
    Forward pass{.training = true,
                 .random = {.seed = seed},
                 .sample_ids = from_values(context, std::vector<std::int64_t>{0, 1}, {2})};
    return doubles(model.output(token_numbers(context, {2, 7}, 3), pass).value());
  };
  EXPECT_TRUE(trained(1) == trained(2));  // B is 0
  fill_adapters(*model.module, context);
  EXPECT_TRUE(trained(1) == trained(1));
  EXPECT_FALSE(trained(1) == trained(2));
  EXPECT_FALSE(trained(1) == outputs_of(model, context));
}

}  // namespace
}  // namespace keel
