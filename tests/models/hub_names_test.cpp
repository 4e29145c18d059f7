// What files call the parameters of models.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/models/hub_tensors.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

TEST(HubNames, OfGpt2AreThoseOfTransformers) {
  Gpt model(testing::tiny_gpt());
  const HubNames names = hub_names(model, find_model("gpt")->naming);
  EXPECT_EQ(names.base_prefix, "transformer.");
  const auto at = [&](std::string_view name) {
    const auto found = std::ranges::find(names.tensors, name, &HubTensor::name);
    EXPECT_NE(found, names.tensors.end()) << name;
    return *found;
  };
  EXPECT_EQ(names.tensors.size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(at("transformer.wte.weight").also, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(at("transformer.h.1.attn.c_attn.weight").shape, (Dims{32, 96}));
  EXPECT_TRUE(at("transformer.h.1.attn.c_attn.weight").transposed);
  EXPECT_EQ(at("transformer.h.0.mlp.c_proj.weight").shape, (Dims{128, 32}));
  EXPECT_EQ(at("transformer.h.0.mlp.c_proj.weight").parameter, "h.0.mlp.c_proj.weight");
  EXPECT_FALSE(at("transformer.wpe.weight").transposed);
  for (const std::string ending : {"attn.bias", "attn.masked_bias"})
    EXPECT_NE(std::ranges::find(names.ignored, ending), names.ignored.end()) << ending;
}

// A model that calls its base as files do, and has a head beside it.
struct NamedWhole : Module {
  NamedWhole() : table(4, 2), qkv(2, 6), head(table.weight.tie()) { qkv.parts = {{"q", 2}, {"k", 1}, {"v", 3}}; }
  Embedding table;
  Linear qkv;
  Parameter head;
  void visit(Visitor& v) override {
    v("model.table", table);
    v("model.qkv", qkv);
    v("head.weight", head);
  }
};

TEST(HubNames, HaveThePrefixOnceAndRowsOfPackedLayersByTheirParts) {
  NamedWhole model;
  const HubNames names = hub_names(model, {.base_prefix = "model.",
                                           .ignored = "inv_freq",
                                           .renamed = "norm.gamma=norm.weight|norm.beta=norm.bias",
                                           .heads = "cls.|score."});
  EXPECT_EQ(names.heads, (std::vector<std::string>{"cls.", "score."}));
  EXPECT_EQ(names.renamed, (std::vector<std::pair<std::string, std::string>>{{"norm.gamma", "norm.weight"},
                                                                             {"norm.beta", "norm.bias"}}));
  std::string told;
  for (const HubTensor& each : names.tensors)
    told += concat(each.name, ' ', each.parameter, ' ', each.shape, ' ', each.first_row, '\n');
  EXPECT_EQ(told,
            "model.table.weight model.table.weight (4, 2) 0\n"
            "model.q.weight model.qkv.weight (2, 2) 0\n"
            "model.k.weight model.qkv.weight (1, 2) 2\n"
            "model.v.weight model.qkv.weight (3, 2) 3\n"
            "model.q.bias model.qkv.bias (2) 0\n"
            "model.k.bias model.qkv.bias (1) 2\n"
            "model.v.bias model.qkv.bias (3) 3\n");
  EXPECT_EQ(names.tensors.front().also, std::vector<std::string>{"head.weight"});
}

}  // namespace
}  // namespace keel
