// LoRA's laws on small models of each kind: what it changes at first (nothing), what it is trained by, what it merges
// into, and how it is named.

#include "keel/models/lora.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/select.h"
#include "keel/models/decoder.h"
#include "keel/models/hub_tensors.h"
#include "keel/models/model_keys.h"
#include "keel/nn/state.h"
#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/models/tiny_encoder.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::tiny_encoder;
using testing::tiny_gpt;
using testing::token_numbers;

// A model with what it gives for tokens, and its names.
struct AdaptedModel {
  std::unique_ptr<Module> module;
  std::function<Variable(const Tensor& tokens, Forward& pass)> output;
  HubNaming naming;
};

AdaptedModel adapted_gpt(bool bias = true) {
  GptOptions options = tiny_gpt();
  options.bias = bias;
  auto gpt = std::make_unique<Gpt>(options);
  const Gpt& model = *gpt;
  return {std::move(gpt), [&model](const Tensor& tokens, Forward& pass) { return model(tokens, pass); },
          find_model("gpt")->naming};
}

// A tied one has its embedding as its head.
std::unique_ptr<RotaryDecoder> decoder_with_head(bool tied = false) {
  DecoderOptions options;
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.layer = {.width = 24, .hidden = 40, .heads = 4, .kv_heads = 2, .head_size = 8};
  options.layer.deviation = 0.2;
  options.rotary.max_positions = 16;
  options.tied = tied;
  return std::make_unique<RotaryDecoder>(options);
}

AdaptedModel adapted_decoder() {
  std::unique_ptr<RotaryDecoder> decoder = decoder_with_head();
  const RotaryDecoder& model = *decoder;
  return {std::move(decoder), [&model](const Tensor& tokens, Forward& pass) { return model(tokens, pass); },
          find_model("llama")->naming};
}

AdaptedModel adapted_encoder(std::string_view family = "bert") {
  auto encoder =
      std::make_unique<Encoder>(tiny_encoder(family), HeadOptions{.head = EncoderHead::sequence, .outputs = 3});
  const Encoder& model = *encoder;
  return {std::move(encoder), [&model](const Tensor& tokens, Forward& pass) { return model({.tokens = tokens}, pass); },
          find_model(family)->naming};
}

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
    EXPECT_EQ(std::set<std::string>(saved.begin(), saved.end()),
              std::set<std::string>(each.saved.begin(), each.saved.end()));
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

TEST(Lora, FindsLayersAsPeftDoes) {
  const auto layers_of = [](const AdaptedModel& model, const std::vector<std::string>& targets) {
    add_lora(*model.module, {.rank = 2, .targets = targets}, model.naming);
    std::set<std::string> names;
    for_each_parameter(*model.module, [&](const std::string& path, Parameter&) {
      if (path.ends_with(".lora_A.weight")) names.insert(path.substr(0, path.size() - 14));
    });
    return names;
  };
  EXPECT_EQ(layers_of(adapted_gpt(), {"c_attn"}), (std::set<std::string>{"h.0.attn.c_attn", "h.1.attn.c_attn"}));
  EXPECT_EQ(layers_of(adapted_gpt(), {"attn.c_proj", "transformer.h.1.mlp.c_proj"}),
            (std::set<std::string>{"h.0.attn.c_proj", "h.1.attn.c_proj", "h.1.mlp.c_proj"}));
  EXPECT_EQ(
      layers_of(adapted_decoder(), {"v_proj", "1.mlp.gate_up_proj"}),
      (std::set<std::string>{"model.layers.0.self_attn.qkv_proj.v_proj", "model.layers.1.self_attn.qkv_proj.v_proj",
                             "model.layers.1.mlp.gate_up_proj.gate_proj", "model.layers.1.mlp.gate_up_proj.up_proj"}));
  EXPECT_EQ(layers_of(adapted_encoder(), {"pooler.dense"}), (std::set<std::string>{"bert.pooler.dense"}));
}

TEST(Lora, SaysWhatThereIsWhereANameFitsNothing) {
  const auto refused = [](const AdaptedModel& model, const LoraOptions& options) {
    return error_of([&] { add_lora(*model.module, options, model.naming); });
  };
  EXPECT_EQ(
      refused(adapted_decoder(), {.rank = 2, .targets = {"q_proj", "proj"}}),
      "model.lora_targets: no linear layer of the model is called 'proj'; there are down_proj, gate_proj, k_proj, "
      "lm_head, o_proj, q_proj, up_proj, v_proj, names as long as model.layers.0.self_attn.q_proj, and all");
  EXPECT_NE(refused(adapted_gpt(), {.rank = 2, .trained = {"score"}})
                .find("model.lora_trains: no module of the model is called 'score', which is to be trained as a whole; "
                      "there are "),
            std::string::npos);
  EXPECT_EQ(refused(adapted_decoder(), {.rank = 2, .targets = {"proj"}, .place = "there/adapter_config.json"})
                .find("there/adapter_config.json: target_modules: no linear layer of the model is called 'proj'"),
            0u);
  EXPECT_NE(refused(adapted_gpt(), {.rank = 2, .targets = {"lm_head"}})
                .find("model.lora_targets: the weight of lm_head is that of another module too"),
            std::string::npos);
  EXPECT_NE(refused(adapted_gpt(), {.rank = 2, .targets = {}}).find("no linear layer is named"), std::string::npos);
  EXPECT_NE(refused(adapted_gpt(), {.rank = 2, .dropout = 1}).find("dropout must be in [0, 1)"), std::string::npos);
  Linear layer(4, 6);
  EXPECT_NE(error_of([&] { layer.add_adapter("q", 2, 1, 0); }).find("has no part 'q'"), std::string::npos);
  EXPECT_NE(error_of([&] { layer.add_adapter("", 0, 1, 0); }).find("a rank of at least 1"), std::string::npos);
  layer.add_adapter("", 2, 1, 0);
  EXPECT_NE(error_of([&] { layer.add_adapter("", 2, 1, 0); }).find("have an adapter already"), std::string::npos);
}

TEST(Lora, NamesFilesAsPeftDoes) {
  const AdaptedModel gpt = adapted_gpt(), llama = adapted_decoder(), bert = adapted_encoder();
  const LoraOptions lora = {.rank = 2, .targets = {"c_attn"}};
  add_lora(*gpt.module, lora, gpt.naming);
  const HubNames names = adapter_names(*gpt.module, gpt.naming);
  ASSERT_EQ(names.tensors.size(), 4u);
  EXPECT_EQ(names.tensors[0].name, "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
  EXPECT_EQ(names.tensors[0].parameter, "h.0.attn.c_attn.lora_A.weight");
  EXPECT_EQ(names.tensors[3].name, "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight");
  EXPECT_EQ(names.tensors[3].shape, (Dims{96, 2}));
  const Json config =
      Json::parse(adapter_config(*gpt.module, lora, gpt.naming, {.base = "gpt2", .task_type = "CAUSAL_LM"}));
  EXPECT_TRUE(config.at("fan_in_fan_out").boolean());
  EXPECT_EQ(config.at("target_modules").dump(), R"(["c_attn"])");
  EXPECT_EQ(config.at("lora_alpha").dump(), "16");
  EXPECT_EQ(config.at("base_model_name_or_path").string(), "gpt2");

  add_lora(*llama.module, {.rank = 2, .targets = {"0.self_attn.q_proj"}}, llama.naming);
  EXPECT_EQ(adapter_names(*llama.module, llama.naming).tensors[1].name,
            "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
  const Json of_llama = Json::parse(adapter_config(*llama.module, {.rank = 2}, llama.naming, {}));
  EXPECT_EQ(of_llama.at("target_modules").dump(), R"(["model.layers.0.self_attn.q_proj"])");
  EXPECT_FALSE(of_llama.at("fan_in_fan_out").boolean());

  const LoraOptions with_head = {.rank = 2, .targets = {"key"}, .trained = {"classifier"}};
  add_lora(*bert.module, with_head, bert.naming);
  const HubNames of_bert = adapter_names(*bert.module, bert.naming);
  EXPECT_EQ(of_bert.tensors.at(4).name, "base_model.model.classifier.weight");
  EXPECT_EQ(of_bert.tensors.at(0).name, "base_model.model.bert.encoder.layer.0.attention.self.key.lora_A.weight");
}

TEST(Lora, FollowsFromKeysOrFromPeftsFile) {
  using Given = std::vector<std::pair<std::string, std::string>>;
  for (const ModelKind kind : {ModelKind::decoder, ModelKind::encoder}) {
    const bool decodes = kind == ModelKind::decoder;
    const std::vector<KeyRow> rows = model_keys(kind, decodes ? "gpt" : "bert");
    EXPECT_EQ(complaint_about(rows, {}), "");
    EXPECT_EQ(lora_options(Settings(rows)).rank, 0);
    const LoraOptions keyed = lora_options(Settings(rows, Given{{"model.lora_rank", "4"},
                                                                {"model.lora_alpha", "2.5"},
                                                                {"model.lora_targets", "[q_proj, v_proj]"},
                                                                {"model.lora_rank_stabilised", "true"},
                                                                {"model.lora_trains", "[classifier]"}}));
    EXPECT_EQ(keyed.rank, 4);
    EXPECT_DOUBLE_EQ(keyed.scale(), 1.25);
    EXPECT_EQ(keyed.targets, (std::vector<std::string>{"q_proj", "v_proj"}));
    EXPECT_EQ(keyed.trained, std::vector<std::string>{"classifier"});
    const testing::TemporaryFolder place;
    write_text_file(place / kAdapterConfig,
                    R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["c_attn"]})");
    const LoraOptions read = lora_options(Settings(rows, Given{{"model.lora_from", place / ""}}));
    EXPECT_EQ(read.rank, 8);
    EXPECT_EQ(read.scale(), 2);
    EXPECT_EQ(read.targets, std::vector<std::string>{"c_attn"});
    EXPECT_NE(error_of([&] {
                Settings(rows, Given{{"model.lora_from", place / ""}, {"model.lora_rank", "4"}});
              }).find("model.lora_rank"),
              std::string::npos);
  }
}

TEST(Lora, KeysThatDescribeAdaptersAreRefusedWhereThereAreNone) {
  using Given = std::vector<std::pair<std::string, std::string>>;
  const auto complaints = [](Given given) {
    std::string all;
    for (const SettingsComplaint& each : complain_of_model(Settings(model_keys(ModelKind::decoder, "gpt"), given)))
      all += concat(each.keys[0], ": ", each.message, '\n');
    return all;
  };
  const Given changes = {{"model.lora_alpha", "8"},
                         {"model.lora_dropout", "0.1"},
                         {"model.lora_rank_stabilised", "true"},
                         {"model.lora_targets", "[c_attn]"},
                         {"model.lora_trains", "[wte]"}};
  for (const auto& change : changes)
    for (const char* from : {"none", "some"}) {
      EXPECT_EQ(complaints({change, {"model.from", from}}),
                concat(change.first,
                       ": describes adapters, and model.lora_rank is 0, which trains all weights; set "
                       "model.lora_rank, such as 8, or leave the key out\n"));
      EXPECT_EQ(complaints({change, {"model.from", from}, {"model.lora_rank", "8"}}), "");
    }
  EXPECT_EQ(complaints({{"model.lora_from", "some"}}), "");
  EXPECT_EQ(complaints({}), "");
}

TEST(Lora, ReadsWhatItWritesAndRefusesWhatItDoesNotCompute) {
  const AdaptedModel gpt = adapted_gpt();
  const LoraOptions lora = {.rank = 2, .alpha = 2.5, .rank_stabilised = true, .dropout = 0.25, .targets = {"c_fc"}};
  add_lora(*gpt.module, lora, gpt.naming);
  const std::string text = adapter_config(*gpt.module, lora, gpt.naming, {});
  const LoraOptions read = read_adapter_config(text, "here");
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.alpha, 2.5);
  EXPECT_TRUE(read.rank_stabilised);
  EXPECT_EQ(read.dropout, 0.25);
  EXPECT_EQ(read.targets, lora.targets);
  const auto refused = [&](std::string_view key, const Json& value) {
    Json json = Json::parse(text);
    json[key] = value;
    return error_of([&] { read_adapter_config(json.dump(), "here"); });
  };
  EXPECT_EQ(refused("use_dora", true), "here: use_dora is true, which keel does not compute");
  EXPECT_EQ(refused("rank_pattern", {{"c_fc", 4}}), "here: rank_pattern is {\"c_fc\":4}, which keel does not compute");
  EXPECT_EQ(refused("bias", "all"), "here: bias is \"all\"; keel reads none alone");
  EXPECT_EQ(refused("init_lora_weights", "pissa"),
            "here: init_lora_weights is \"pissa\", which changes the weights of the base model");
  EXPECT_EQ(refused("peft_type", "IA3"), "here: peft_type is not LORA");
  EXPECT_NE(refused("target_modules", ".*proj").find("target_modules is an expression"), std::string::npos);
  EXPECT_EQ(read_adapter_config(
                [&] {
                  Json json = Json::parse(text);
                  json["target_modules"] = "all-linear";
                  return json.dump();
                }(),
                "here")
                .targets,
            std::vector<std::string>{"all"});
  EXPECT_NE(error_of([] { read_adapter_config("{", "here"); }).find("here: "), std::string::npos);
}

}  // namespace
}  // namespace keel
