// Keys and config.json of Llama, Mistral and Qwen: what is read, what is meant where nothing is said, what is refused.

#include <gtest/gtest.h>

#include "keel/models/decoder.h"
#include "keel/models/hub_tensors.h"
#include "keel/models/model_keys.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

using Keys = std::vector<std::pair<std::string, std::string>>;

Json small_config(const std::string& type) {
  return {{"model_type", type},     {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"vocab_size", 11}};
}

Json with(Json config, const std::vector<Json::Member>& more) {
  for (const auto& [key, value] : more) config[key] = value;
  return config;
}

DecoderOptions options_of(const Json& config) {
  const ModelSpecPtr spec = read_hub_spec(config.dump(), "config.json");
  const auto model = spec->make_decoder();
  return dynamic_cast<RotaryDecoder&>(*model).options;
}

std::string refusal_of(const Json& config) {
  return error_of([&] { (void)options_of(config); });
}

TEST(DecoderSpecs, WhatAConfigurationDoesNotSayIsTransformersDefault) {
  const DecoderOptions llama = options_of(small_config("llama")),
                       mistral = options_of(with(small_config("mistral"), {{"num_attention_heads", 8}})),
                       qwen2 = options_of(with(small_config("qwen2"), {{"num_key_value_heads", 2}})),
                       qwen3 = options_of(with(small_config("qwen3"), {{"num_key_value_heads", 2}}));
  EXPECT_EQ(llama.block, 2048);
  EXPECT_EQ(llama.layer.kv_heads, 4);
  EXPECT_EQ(llama.layer.head_size, 8);
  EXPECT_EQ(llama.layer.epsilon, 1e-6);
  EXPECT_EQ(llama.rotary.theta, 10000);
  EXPECT_FALSE(llama.tied);
  EXPECT_FALSE(llama.layer.qkv_bias || llama.layer.output_bias || llama.layer.mlp_bias || llama.layer.head_norms);
  EXPECT_EQ(mistral.block, 131072);
  EXPECT_EQ(mistral.layer.kv_heads, 8);
  EXPECT_EQ(mistral.window(0), 4096);
  EXPECT_EQ(mistral.window(2), 4096);
  EXPECT_EQ(qwen2.block, 32768);
  EXPECT_TRUE(qwen2.layer.qkv_bias && !qwen2.layer.output_bias && !qwen2.layer.mlp_bias);
  EXPECT_EQ(qwen2.window(2), 0);
  EXPECT_EQ(qwen3.layer.head_size, 128);
  EXPECT_TRUE(qwen3.layer.head_norms && !qwen3.layer.qkv_bias);
}

TEST(DecoderSpecs, HeadsThatAreNotSaidAreTheFamilys) {
  EXPECT_EQ(refusal_of(small_config("mistral")), "config.json: num_key_value_heads: 4 heads are not a multiple of 8");
  EXPECT_EQ(refusal_of(small_config("qwen2")), "config.json: num_key_value_heads: 4 heads are not a multiple of 32");
  EXPECT_EQ(options_of(with(small_config("mistral"), {{"num_key_value_heads", nullptr}})).layer.kv_heads, 4);
}

TEST(DecoderSpecs, WindowsAreThoseOfTheLayersThatHaveOne) {
  const auto windows = [](const Json& config) {
    const DecoderOptions options = options_of(config);
    return std::vector{options.window(0), options.window(1), options.window(2)};
  };
  using Windows = std::vector<std::int64_t>;
  const Json mistral = with(small_config("mistral"), {{"num_key_value_heads", 2}}),
             qwen = with(small_config("qwen2"), {{"num_key_value_heads", 2}, {"sliding_window", 7}});
  EXPECT_EQ(windows(with(mistral, {{"sliding_window", nullptr}})), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(with(mistral, {{"sliding_window", 9}})), (Windows{9, 9, 9}));
  EXPECT_EQ(windows(qwen), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(with(qwen, {{"use_sliding_window", true}})), (Windows{0, 0, 0}));  // from layer 28 on
  EXPECT_EQ(windows(with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 1}})), (Windows{0, 7, 7}));
  const Json types = Json::array({"sliding_attention", "full_attention", "sliding_attention"});
  EXPECT_EQ(windows(with(qwen, {{"use_sliding_window", true}, {"layer_types", types}})), (Windows{7, 0, 7}));
  EXPECT_EQ(refusal_of(with(qwen, {{"layer_types", types}})),
            "config.json: layer_types: a layer has sliding_attention, and there is no sliding_window that is used");
  EXPECT_EQ(refusal_of(with(qwen, {{"layer_types", Json::array({"full_attention"})}})),
            "config.json: layer_types: expects a list of 3 texts, one for each layer");
  EXPECT_NE(refusal_of(with(mistral, {{"sliding_window", 0}})).find("sliding_window: expects at least 1"),
            std::string::npos);
  EXPECT_NE(refusal_of(with(small_config("llama"), {{"sliding_window", 9}})).find("does not know sliding_window (9)"),
            std::string::npos);
}

TEST(DecoderSpecs, BothSpellingsOfRotaryPositionsAreOne) {
  const Json scaling = {{"type", "linear"}, {"factor", 2.0}},
             parameters = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500.0}};
  const Json old = with(small_config("llama"), {{"rope_theta", 500}, {"rope_scaling", scaling}}),
             fresh = with(small_config("llama"), {{"rope_parameters", parameters}});
  const auto dump = [](const Json& config) { return read_hub_spec(config.dump(), "c")->hub_config().dump(); };
  EXPECT_EQ(dump(old), dump(fresh));
  EXPECT_EQ(options_of(fresh).rotary.theta, 500);
  EXPECT_EQ(options_of(fresh).rotary.factor, 2);
  EXPECT_EQ(options_of(fresh).block, 4096);
  EXPECT_NE(refusal_of(with(old, {{"rope_parameters", parameters}})).find("beside rope_parameters"), std::string::npos);
}

TEST(DecoderSpecs, RotaryPositionsThatKeelDoesNotHaveAreRefused) {
  const auto refusal = [](const Json& scaling) {
    return refusal_of(with(small_config("llama"), {{"rope_scaling", scaling}}));
  };
  EXPECT_EQ(refusal({{"type", "mrope"}}),
            "config.json: rope_scaling: keel has no scaling 'mrope'; it has default, linear, dynamic, yarn, longrope, "
            "llama3");
  EXPECT_EQ(refusal({{"type", "linear"}}),
            "config.json: rope_scaling: rotary positions: rope_type linear needs a factor above 0");
  EXPECT_EQ(refusal({{"type", "linear"}, {"factor", "2"}}),
            "config.json: rope_scaling.factor: expects a number, got \"2\"");
  EXPECT_EQ(refusal({{"type", "linear"}, {"factor", 2}, {"beta_fast", 3}}),
            "config.json: rope_scaling: keel does not know its key beta_fast where the scaling is linear");
  EXPECT_EQ(refusal("linear"), "config.json: rope_scaling: expects an object, got \"linear\"");
  EXPECT_NE(refusal({{"type", "longrope"}, {"short_factor", Json::array({1.0})}, {"long_factor", Json::array({1.0})}}),
            "");
  EXPECT_EQ(refusal_of(with(small_config("llama"), {{"partial_rotary_factor", 0.5}})),
            "config.json: partial_rotary_factor: is 0.5, and keel's llama turns whole heads");
}

TEST(DecoderSpecs, ShapesThatAreNoneAreRefusedByTheirKey) {
  const auto refusal = [](std::string_view key, const Json& value) {
    return refusal_of(with(small_config("llama"), {{std::string(key), value}}));
  };
  EXPECT_EQ(refusal("hidden_size", 0), "config.json: hidden_size: expects a whole number from 1 to 65536, got 0");
  EXPECT_EQ(refusal("hidden_size", 34),
            "config.json: num_attention_heads: 4 heads do not divide hidden_size 34, and there is no head_dim");
  EXPECT_EQ(refusal("head_dim", 7), "config.json: head_dim: heads of 7 numbers have no pairs to turn");
  EXPECT_EQ(refusal("num_key_value_heads", 3), "config.json: num_key_value_heads: 4 heads are not a multiple of 3");
  EXPECT_EQ(refusal("attention_dropout", 1.5),
            "config.json: attention_dropout: expects a probability in [0, 1), got 1.5");
  EXPECT_EQ(
      refusal("hidden_act", "mish"),
      "config.json: hidden_act: keel's llama has silu, swish, gelu, gelu_pytorch_tanh, gelu_new, gelu_fast, relu, "
      "sigmoid, and no 'mish'");
  EXPECT_NE(refusal("use_qk_norm", true).find("does not know use_qk_norm (true)"), std::string::npos);
  EXPECT_EQ(refusal("num_hidden_layers", nullptr), "config.json: num_hidden_layers: is missing, and is a whole number");
}

TEST(DecoderSpecs, NumbersThatNothingCanBeBuiltOfAreRefusedWithKeyValueAndWhatIsAllowed) {
  struct Refused {
    std::string_view key;
    Json value;
    std::string_view why;
  };
  for (const Refused& each :
       {Refused{"num_hidden_layers", 2000000000, "expects a whole number from 1 to 1024, got 2000000000"},
        Refused{"num_hidden_layers", std::int64_t{1} << 62,
                "expects a whole number from 1 to 1024, got 4611686018427387904"},
        Refused{"hidden_size", std::int64_t{1} << 40, "expects a whole number from 1 to 65536, got 1099511627776"},
        Refused{"hidden_size", -32, "expects a whole number from 1 to 65536, got -32"},
        Refused{"vocab_size", 0, "expects a whole number from 1 to 16777216, got 0"},
        Refused{"vocab_size", std::int64_t{1} << 62,
                "expects a whole number from 1 to 16777216, got 4611686018427387904"},
        Refused{"intermediate_size", std::int64_t{1} << 62,
                "expects a whole number from 1 to 1048576, got 4611686018427387904"},
        Refused{"num_attention_heads", 0, "expects a whole number from 1 to 1024, got 0"},
        Refused{"num_attention_heads", 5, "5 heads do not divide hidden_size 32, and there is no head_dim"},
        Refused{"num_key_value_heads", -1, "expects a whole number from 1 to 1024, got -1"},
        Refused{"head_dim", 1000000, "expects a whole number from 1 to 4096, got 1000000"},
        Refused{"max_position_embeddings", 0, "expects a whole number from 1 to 1073741824, got 0"},
        Refused{"max_position_embeddings", std::int64_t{1} << 62,
                "expects a whole number from 1 to 1073741824, got 4611686018427387904"},
        Refused{"rms_norm_eps", 0, "expects a finite number above 0, got 0"},
        Refused{"rms_norm_eps", -1e-5, "expects a finite number above 0, got -1e-05"},
        Refused{"rms_norm_eps", 1e-60, "expects a finite number above 0, got 1e-60"},
        Refused{"rms_norm_eps", 1e60, "expects a finite number above 0, got 1e+60"},
        Refused{"rms_norm_eps", "1e-5", "expects a number, got \"1e-5\""},
        Refused{"initializer_range", -1, "expects a number from 0 to 1e6, got -1"},
        Refused{"attention_dropout", 1, "expects a probability in [0, 1), got 1"}})
    EXPECT_EQ(refusal_of(with(small_config("llama"), {{std::string(each.key), each.value}})),
              concat("config.json: ", each.key, ": ", each.why));
  const Json gpt = {{"model_type", "gpt2"}, {"n_embd", 32},      {"n_head", 4},
                    {"n_layer", 2},         {"n_positions", 16}, {"vocab_size", 61}};
  const auto said = [&](const std::string& key, const Json& value) {
    return error_of([&] { (void)read_hub_spec(with(gpt, {{key, value}}).dump(), "config.json"); });
  };
  EXPECT_EQ(said("n_head", 5), "config.json: n_head: 5 heads do not divide n_embd 32");
  EXPECT_EQ(said("n_head", 0), "config.json: n_head: expects a whole number from 1 to 1024, got 0");
  EXPECT_EQ(said("n_layer", 2000000000), "config.json: n_layer: expects a whole number from 1 to 1024, got 2000000000");
  EXPECT_EQ(said("n_positions", 0), "config.json: n_positions: expects a whole number from 1 to 1073741824, got 0");
  EXPECT_EQ(said("resid_pdrop", 1.5), "config.json: resid_pdrop: expects a probability in [0, 1), got 1.5");
  EXPECT_EQ(said("attn_pdrop", -1), "config.json: attn_pdrop: expects a probability in [0, 1), got -1");
}

TEST(DecoderSpecs, KeysThatComputeNothingAreTakenAndOthersRefusedByName) {
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Json plain = with(small_config(type), {{"num_key_value_heads", 2}});
    const std::string shape = read_hub_spec(plain.dump(), "c")->hub_config().dump();
    const auto said = [&](const std::vector<Json::Member>& more) {
      std::string found;
      const std::string error =
          error_of([&] { found = read_hub_spec(with(plain, more).dump(), "c")->hub_config().dump(); });
      return error.empty() && found != shape ? "another shape" : error;
    };
    EXPECT_EQ(said({{"pad_token_id", 0},
                    {"is_llama_config", true},
                    {"transformers.js_config", Json::object()},
                    {"unsloth_version", "2024.9"},
                    {"neftune_noise_alpha", 5}}),
              "");
    EXPECT_EQ(said({{"use_mrope", false},
                    {"rope_interleaved", false},
                    {"is_decoder", false},
                    {"add_cross_attention", false},
                    {"is_encoder_decoder", false},
                    {"tie_encoder_decoder", false},
                    {"chunk_size_feed_forward", 0},
                    {"pruned_heads", Json::object()},
                    {"attention_bias", false},
                    {"mlp_bias", false}}),
              "");
    for (const auto& [key, value] : std::vector<Json::Member>{{"use_mrope", true},
                                                              {"rope_interleaved", true},
                                                              {"is_decoder", true},
                                                              {"add_cross_attention", true},
                                                              {"is_encoder_decoder", true},
                                                              {"chunk_size_feed_forward", 4},
                                                              {"pruned_heads", {{"0", Json::array({1})}}}})
      EXPECT_EQ(said({{key, value}}).find(concat("c: ", key, ": is ", value.dump(), ", and keel's ", type)), 0U) << key;
    if (type == "mistral" || type == "qwen2") {
      EXPECT_NE(said({{"attention_bias", true}}).find("attention_bias: is true"), std::string::npos);
    }
    if (type != "llama") { EXPECT_NE(said({{"mlp_bias", true}}).find("mlp_bias: is true"), std::string::npos); }
    EXPECT_EQ(error_of([&] {
                const std::string mine = "use_mrope";
                (void)read_hub_spec(with(plain, {{"use_mrope", true}}).dump(), "c", std::span(&mine, 1));
              }),
              "");
  }
}

TEST(DecoderSpecs, PackedLayersAreThreeAndTwoTensorsOfAFile) {
  const ModelSpecPtr spec =
      read_hub_spec(with(small_config("qwen3"), {{"num_key_value_heads", 2}, {"head_dim", 6}}).dump(), "c");
  const auto model = spec->make_decoder();
  std::string names;
  for (const HubTensor& tensor : hub_tensors(*model, spec->entry().naming))
    if (tensor.name.find("layers.1.") != std::string::npos || tensor.name.find("layers") == std::string::npos)
      names += concat(tensor.name, ' ', tensor.shape, " from ", tensor.first_row, '\n');
  EXPECT_EQ(names,
            "model.embed_tokens.weight (11, 32) from 0\n"
            "model.layers.1.input_layernorm.weight (32) from 0\n"
            "model.layers.1.self_attn.q_proj.weight (24, 32) from 0\n"
            "model.layers.1.self_attn.k_proj.weight (12, 32) from 24\n"
            "model.layers.1.self_attn.v_proj.weight (12, 32) from 36\n"
            "model.layers.1.self_attn.q_norm.weight (6) from 0\n"
            "model.layers.1.self_attn.k_norm.weight (6) from 0\n"
            "model.layers.1.self_attn.o_proj.weight (32, 24) from 0\n"
            "model.layers.1.post_attention_layernorm.weight (32) from 0\n"
            "model.layers.1.mlp.gate_proj.weight (48, 32) from 0\n"
            "model.layers.1.mlp.up_proj.weight (48, 32) from 48\n"
            "model.layers.1.mlp.down_proj.weight (32, 48) from 0\n"
            "model.norm.weight (32) from 0\n"
            "lm_head.weight (11, 32) from 0\n");
}

DecoderOptions options_by_keys(const Keys& given) {
  const Settings settings(model_keys(ModelKind::decoder, "gpt"), given);
  const auto model = model_spec(settings, 20)->make_decoder();
  return dynamic_cast<RotaryDecoder&>(*model).options;
}

TEST(DecoderSpecs, KeysDescribeAModelOfOnesOwn) {
  const DecoderOptions llama = options_by_keys({{"model.type", "llama"}});
  EXPECT_EQ(llama.vocabulary, 20);
  EXPECT_EQ(llama.layer.hidden, 384);
  EXPECT_EQ(llama.layer.kv_heads, 4);
  EXPECT_EQ(llama.layer.head_size, 32);
  EXPECT_EQ(llama.rotary.theta, 10000);
  EXPECT_EQ(options_by_keys({{"model.type", "mistral"}}).window(3), 4096);
  EXPECT_EQ(options_by_keys({{"model.type", "qwen3"}}).rotary.theta, 1000000);
  const DecoderOptions own = options_by_keys({{"model.type", "qwen2"},
                                              {"model.width", "100"},
                                              {"model.heads", "6"},
                                              {"model.kv_heads", "2"},
                                              {"model.head_size", "8"},
                                              {"model.hidden", "72"},
                                              {"model.rope_theta", "5000"},
                                              {"model.window", "9"},
                                              {"model.tied", "true"},
                                              {"model.attention_dropout", "0.2"}});
  EXPECT_EQ(own.layer.width, 100);
  EXPECT_EQ(own.layer.kv_heads, 2);
  EXPECT_EQ(own.layer.head_size, 8);
  EXPECT_EQ(own.layer.hidden, 72);
  EXPECT_EQ(own.rotary.theta, 5000);
  EXPECT_EQ(own.window(0), 9);
  EXPECT_TRUE(own.tied && own.layer.qkv_bias);
  EXPECT_EQ(own.layer.attention_dropout, 0.2);
}

TEST(DecoderSpecs, KeysThatDoNotFitAreComplainedAbout) {
  const auto complaints = [](const Keys& given) {
    std::string all;
    for (const SettingsComplaint& each : complain_of_model(Settings(model_keys(ModelKind::decoder, "gpt"), given)))
      all += concat(each.keys[0], ": ", each.message, '\n');
    return all;
  };
  EXPECT_EQ(complaints({{"model.type", "llama"}}), "");
  EXPECT_EQ(complaints({{"model.type", "llama"}, {"model.kv_heads", "3"}}),
            "model.kv_heads: 4 heads are not a multiple of 3 key/value heads\n");
  EXPECT_EQ(complaints({{"model.type", "llama"}, {"model.head_size", "7"}}),
            "model.head_size: heads of 7 numbers have no pairs to turn\n");
  EXPECT_EQ(complaints({{"model.type", "llama"}, {"model.width", "12"}}),
            "model.heads: heads of 3 numbers have no pairs to turn; choose an even size\n");
  EXPECT_EQ(complaints({{"model.type", "llama"}, {"model.width", "13"}, {"model.head_size", "6"}}), "");
  EXPECT_EQ(complaints({{"model.type", "gpt"}, {"model.width", "13"}}),
            "model.heads: 4 heads do not divide the width 13; choose a width that is a multiple\n");
}

TEST(DecoderSpecs, AGptsAttentionDropoutIsAttnPdrop) {
  const Settings settings(model_keys(ModelKind::decoder, "gpt"), Keys{{"model.attention_dropout", "0.25"}});
  const ModelSpecPtr spec = model_spec(settings, 20);
  EXPECT_EQ(spec->dropout(), 0.25);
  const Json written = spec->hub_config();
  EXPECT_EQ(written.at("attn_pdrop").number(), 0.25);
  EXPECT_EQ(read_hub_spec(written.dump(), "c")->hub_config().dump(), written.dump());
}

}  // namespace
}  // namespace keel
