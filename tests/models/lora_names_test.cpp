// What LoRA's adapters are called: by keys, in PEFT's files and in messages.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/models/lora.h"
#include "keel/models/model_keys.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "tests/error_of.h"
#include "tests/models/adapted_models.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::adapted_decoder;
using testing::adapted_encoder;
using testing::adapted_gpt;
using testing::AdaptedModel;
using testing::error_of;

TEST(LoraNames, FindsLayersAsPeftDoes) {
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

TEST(LoraNames, SaysWhatThereIsWhereANameFitsNothing) {
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

TEST(LoraNames, NamesFilesAsPeftDoes) {
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

TEST(LoraNames, FollowsFromKeysOrFromPeftsFile) {
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

TEST(LoraNames, KeysThatDescribeAdaptersAreRefusedWhereThereAreNone) {
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

TEST(LoraNames, ReadsWhatItWritesAndRefusesWhatItDoesNotCompute) {
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
