// Encoders of the catalog: by keys, by config.json, and what their heads add to it.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/models/encoder.h"
#include "keel/models/model_keys.h"
#include "tests/error_of.h"
#include "tests/models/tiny_encoder.h"

namespace keel {
namespace {

using testing::error_of;

std::string bert_config(const std::string& more = {}) {
  return R"({"model_type": "bert", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2,)"
         R"( "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 16)" +
         more + "}";
}

Settings keys_of(const std::string& type, std::vector<std::pair<std::string, std::string>> given) {
  given.emplace_back("model.type", type);
  return Settings(model_keys(ModelKind::encoder, "bert"), given);
}

// Heads of a masked language model; the counts are those of transformers' models of these names.
TEST(EncoderSpec, PublishedSizesHaveTheParametersOfTransformers) {
  struct Size {
    const char *type, *name;
    std::int64_t parameters;
    EncoderHead head = EncoderHead::masked_language;
  };
  for (const Size& size :
       {Size{"bert", "bert-base", 109514298}, Size{"bert", "bert-large", 335174458},
        Size{"roberta", "roberta-base", 124697433}, Size{"roberta", "roberta-large", 355412057},
        Size{"xlm_roberta", "xlm-roberta-base", 278295186}, Size{"distilbert", "distilbert-base", 66985530},
        Size{"electra", "electra-base", 109483009, EncoderHead::replaced}}) {
    const ModelSpecPtr spec = model_spec(keys_of(size.type, {{"model.name", size.name}}), 0);
    EXPECT_EQ(spec->block(), 512) << size.name;
    EXPECT_EQ(count_parameters(*spec->make_encoder({.head = size.head})), size.parameters) << size.name;
  }
}

TEST(EncoderSpec, KeysDescribeTheModelThatConfigJsonDoes) {
  for (const EncoderFamily& family : encoder_families()) {
    std::vector<std::pair<std::string, std::string>> given = {
        {"model.layers", "3"},       {"model.heads", "2"},       {"model.width", "24"},
        {"model.hidden", "40"},      {"model.block", "20"},      {"model.activation", "gelu_tanh"},
        {"model.dropout", "0.125"},  {"model.vocabulary", "70"}, {"model.attention_dropout", "0.25"},
        {"model.padding_token", "5"}};
    if (!family.keys.token_types.empty()) given.emplace_back("model.token_types", "3");
    if (!family.keys.embedding.empty()) given.emplace_back("model.embedding", "12");
    const ModelSpecPtr spec = model_spec(keys_of(std::string(family.name), given), 60);
    EXPECT_EQ(spec->vocabulary(), 70);
    EXPECT_EQ(spec->block(), 20);
    EXPECT_EQ(spec->dropout(), 0.25);
    const Json config = spec->hub_config();
    EXPECT_EQ(config.at("max_position_embeddings").integer(), family.positions_after_padding ? 26 : 20);
    EXPECT_EQ(config.at(family.keys.activation).string(), "gelu_new");
    EXPECT_EQ(config.at(family.keys.head_dropout).number(), 0.125);
    EXPECT_EQ(config.at(family.keys.width).integer(), 24);
    if (!family.keys.embedding.empty()) { EXPECT_EQ(config.at(family.keys.embedding).integer(), 12); }
    const ModelSpecPtr again = read_hub_spec(config.dump(), "config.json");
    EXPECT_EQ(again->hub_config().dump(), config.dump()) << family.name;
    const auto shapes = [](const ModelSpec& of) {
      std::vector<std::pair<std::string, Dims>> all;
      for_each_parameter(*of.make_encoder({}), [&](const std::string& name, Parameter& parameter) {
        all.emplace_back(name, parameter.shape());
      });
      return all;
    };
    EXPECT_EQ(shapes(*again), shapes(*spec)) << family.name;
  }
}

TEST(EncoderSpec, HeadsSayClassLabelsAndProblem) {
  const ModelSpecPtr spec = read_hub_spec(bert_config(), "config.json");
  const auto class_of = [&](const HeadOptions& head) {
    return spec->hub_config(head).at("architectures").items()[0].string();
  };
  EXPECT_EQ(class_of({}), "BertModel");
  EXPECT_EQ(class_of({.head = EncoderHead::masked_language}), "BertForMaskedLM");
  EXPECT_EQ(class_of({.head = EncoderHead::tokens, .outputs = 2}), "BertForTokenClassification");
  const Json config = spec->hub_config(
      {.head = EncoderHead::sequence, .outputs = 2, .labels = {"bad", "good"}, .problem = HeadProblem::single_label});
  EXPECT_EQ(config.at("architectures").dump(), R"(["BertForSequenceClassification"])");
  EXPECT_EQ(config.at("id2label").dump(), R"({"0":"bad","1":"good"})");
  EXPECT_EQ(config.at("label2id").dump(), R"({"bad":0,"good":1})");
  EXPECT_EQ(config.at("problem_type").string(), "single_label_classification");
  const auto problem_of = [&](HeadProblem problem) {
    return spec->hub_config({.head = EncoderHead::sequence, .outputs = 1, .problem = problem})
        .at("problem_type")
        .string();
  };
  EXPECT_EQ(problem_of(HeadProblem::regression), "regression");
  EXPECT_EQ(problem_of(HeadProblem::multi_label), "multi_label_classification");
  EXPECT_FALSE(spec->hub_config({.head = EncoderHead::tokens, .outputs = 2}).contains("problem_type"));
  EXPECT_EQ(error_of([&] { spec->hub_config({.head = EncoderHead::tokens, .outputs = 2, .labels = {"one"}}); }),
            "a head of 2 outputs has as many labels, got 1");
}

TEST(EncoderSpec, AKeyThatIsNotComputedIsRefused) {
  const auto refusal = [](const std::string& more) {
    return error_of([&] { read_hub_spec(bert_config(more), "config.json"); });
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(R"(, "pooler_type": "first_token_transform", "position_embedding_type": "absolute")"), "");
  EXPECT_EQ(refusal(R"(, "hidden_act": "mish")"),
            "config.json: hidden_act: keel does not compute 'mish'; it has gelu, gelu_new, gelu_pytorch_tanh, relu, "
            "silu, swish, tanh, sigmoid");
  EXPECT_EQ(refusal(R"(, "is_decoder": true)"),
            "config.json: is_decoder: is true, and keel's bert computes with false alone");
  EXPECT_EQ(refusal(R"(, "position_embedding_type": "relative_key")"),
            "config.json: position_embedding_type: is \"relative_key\", and keel's bert computes with \"absolute\" "
            "alone");
  EXPECT_EQ(refusal(R"(, "hidden_dropout_prob": 1.5)"),
            "config.json: hidden_dropout_prob: expects a probability in [0, 1), got 1.5");
  EXPECT_EQ(
      refusal(R"(, "rotary": 1)"),
      "config.json: keel's bert does not know rotary (1); where that changes nothing that is computed, name it in "
      "model.ignored_keys");
}

TEST(EncoderSpec, NumbersThatNothingCanBeBuiltOfAreRefusedWithKeyValueAndWhatIsAllowed) {
  const auto refusal = [](const std::string& key, const std::string& value) {
    Json config = Json::parse(bert_config());
    config[key] = Json::parse(value);
    return error_of([&] { read_hub_spec(config.dump(), "config.json"); });
  };
  EXPECT_EQ(refusal("pad_token_id", "61"),
            "config.json: pad_token_id: expects a token from 0 to 60, as vocab_size is 61, got 61");
  EXPECT_EQ(refusal("pad_token_id", "-1"),
            "config.json: pad_token_id: expects a token from 0 to 60, as vocab_size is 61, got -1");
  EXPECT_EQ(refusal("num_attention_heads", "5"),
            "config.json: num_attention_heads: 5 heads do not divide hidden_size 32");
  EXPECT_EQ(refusal("num_hidden_layers", "2000000000"),
            "config.json: num_hidden_layers: expects a whole number from 1 to 1024, got 2000000000");
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                          "max_position_embeddings", "type_vocab_size"})
    for (const char* value : {"0", "-4", "4611686018427387904"})
      EXPECT_EQ(refusal(key, value).find(concat("config.json: ", key, ": expects a whole number from 1 to ")), 0U)
          << refusal(key, value);
  for (const char* value : {"0", "-1e-12", "1e99", "1e-99"})
    EXPECT_EQ(
        refusal("layer_norm_eps", value).find("config.json: layer_norm_eps: expects a finite number above 0, got "), 0U)
        << value;
}

TEST(EncoderSpec, ADecoderIsNoEncoderAndTheOtherWayRound) {
  const ModelSpecPtr bert = read_hub_spec(bert_config(), "config.json");
  EXPECT_EQ(error_of([&] { bert->make_decoder(); }), "bert is no decoder, which reads one token after the other");
  const Settings gpt(model_keys(ModelKind::decoder, "gpt"));
  EXPECT_EQ(error_of([&] { model_spec(gpt, 40)->make_encoder({}); }),
            "gpt is no encoder, which sees each token among all others");
}

// 6 N, and two products of each token with all others, forward and twice that backward.
TEST(EncoderSpec, OperationsOfATokenAreThoseOfItsProducts) {
  const ModelSpecPtr spec = read_hub_spec(bert_config(), "config.json");
  EXPECT_EQ(spec->training_flops_of_token(1000), 6 * 1000 + 2 * (3 * 2 * 2 * 16 * 32));
}

}  // namespace
}  // namespace keel
