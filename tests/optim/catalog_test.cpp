#include "keel/optim/catalog.h"

#include <gtest/gtest.h>

#include <set>

#include "keel/kernels/update.h"
#include "keel/optim/groups.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;

TEST(OptimizerCatalog, FindsOptimizersByNameAndByOtherProgramsWords) {
  for (const OptimizerEntry& entry : optimizers()) EXPECT_EQ(&find_optimizer(entry.name), &entry);
  const std::pair<std::string_view, std::string_view> words[] = {{"adamw", "AdamW"},
                                                                 {"ADAM", "Adam"},
                                                                 {"fuse_adam", "AdamW"},
                                                                 {"FusedAdam", "AdamW"},
                                                                 {"tf_adamw", "TFAdamW"},
                                                                 {"hf-adamw", "HFAdamW"},
                                                                 {"sgd", "SGD"},
                                                                 {"rms_prop", "RMSprop"},
                                                                 {"CPUAdam", "AdamW"},
                                                                 {"DeepSpeedCPUAdam", "AdamW"},
                                                                 {"nadam", "NAdam"},
                                                                 {"lion", "Lion"},
                                                                 {"sparse_adam", "SparseAdam"}};
  for (const auto& [word, name] : words) EXPECT_EQ(find_optimizer(word).name, name) << word;
  EXPECT_NE(error_of([] { find_optimizer("AdmaW"); }).find("got 'AdmaW'; did you mean 'AdamW'?"), std::string::npos);
  EXPECT_NE(error_of([] { find_optimizer("momentumless"); }).find("expects one of AdamW, SGD, Adam"),
            std::string::npos);
}

TEST(OptimizerCatalog, NamesAndWordsAreOfOneOptimizerEach) {
  std::set<std::string_view> names;
  for (const OptimizerEntry& entry : optimizers()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_EQ(entry.options.front().option, "lr") << entry.name;
    std::set<std::string_view> options;
    for (const OptionDefault& option : entry.options)
      EXPECT_TRUE(options.insert(option.option).second) << entry.name << ' ' << option.option;
  }
}

TEST(OptimizerCatalog, EveryRuleIsMadeByAnOptimizer) {
  std::set<std::size_t> rules;
  for (const OptimizerEntry& entry : optimizers()) {
    EXPECT_NE(entry.settings == nullptr, entry.make == nullptr) << entry.name;
    if (entry.settings != nullptr) rules.insert(entry.settings(OptimizerOptions{}).index());
  }
  EXPECT_EQ(rules.size(), std::variant_size_v<UpdateSettings::variant>);
}

TEST(OptimizerCatalog, RefusesOptionsThatMakeNoSense) {
  OptimizerOptions options;
  options.betas = {0.9, 1};
  EXPECT_EQ(error_of([&] { make_optimizer(find_optimizer("RAdam"), options, 1); }),
            "RAdam: betas must be in [0, 1), got 0.9 and 1");
  options.betas = {0.9, 0.99};
  options.weight_decay = -1;
  EXPECT_EQ(error_of([&] { make_optimizer(find_optimizer("Lion"), options, 1); }),
            "Lion: weight_decay must not be negative, got -1");
}

TEST(ParameterGroups, TheFirstPatternThatFitsWins) {
  const GroupRule rule = group_by_name({{.match = "bias|LayerNorm.weight", .weight_decay = 0},
                                        {.match = "head", .weight_decay = 0.5, .lr_factor = 2},
                                        {.match = "wte", .lr_factor = 0.1}});
  EXPECT_EQ(rule("h.0.bias", {4}), (ParameterGroup{.decay_factor = 0, .weight_decay = 0.0}));
  EXPECT_EQ(rule("head.bias", {4}).weight_decay, 0);
  EXPECT_EQ(rule("encoder.LayerNorm.weight", {4, 4}).weight_decay, 0);
  EXPECT_EQ(rule("encoder.layer_norm.weight", {4}).weight_decay, std::nullopt);  // a test of substrings
  EXPECT_EQ(rule("head.weight", {4, 4}), (ParameterGroup{.lr_factor = 2, .weight_decay = 0.5}));
  EXPECT_EQ(rule("wte.weight", {4, 4}), (ParameterGroup{.lr_factor = 0.1}));
  EXPECT_EQ(rule("h.0.weight", {4, 4}), decay_matrices_only("", {4, 4}));
  EXPECT_EQ(rule("ln.weight", {4}), decay_matrices_only("", {4}));
}

TEST(ParameterGroups, AnEmptyPatternFitsEveryNameAndAnEmptyWordNone) {
  EXPECT_TRUE(GroupPattern{.match = ""}.fits("x"));
  EXPECT_FALSE(GroupPattern{.match = "a|"}.fits("x"));
  EXPECT_FALSE(GroupPattern{.match = "|"}.fits("x"));
}

TEST(ParameterGroups, DepthGoesFromTheEmbeddingsToTheHead) {
  EXPECT_EQ(depth_of("wte.weight", 12), 0);
  EXPECT_EQ(depth_of("wpe.weight", 12), 0);
  EXPECT_EQ(depth_of("bert.embeddings.LayerNorm.weight", 12), 0);
  EXPECT_EQ(depth_of("h.0.attn.qkv.weight", 12), 1);
  EXPECT_EQ(depth_of("encoder.layer.11.output.dense.bias", 12), 12);
  EXPECT_EQ(depth_of("ln_f.weight", 12), 13);
  EXPECT_EQ(depth_of("lm_head.weight", 12), 13);
  EXPECT_EQ(depth_of("h2.x1.weight", 12), 13);  // no whole number
  const GroupRule rule = decay_by_depth(group_by_name({{.match = "bias", .lr_factor = 2}}), 0.5, 2);
  EXPECT_EQ(rule("wte.weight", {4, 4}).lr_factor, 0.125);
  EXPECT_EQ(rule("h.0.weight", {4, 4}).lr_factor, 0.25);
  EXPECT_EQ(rule("h.1.bias", {4}).lr_factor, 1);
  EXPECT_EQ(rule("ln_f.weight", {4}).lr_factor, 1);
  EXPECT_EQ(rule("ln_f.weight", {4}).decay_factor, 0);
}

}  // namespace
}  // namespace keel
