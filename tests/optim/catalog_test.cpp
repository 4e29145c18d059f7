#include "keel/optim/catalog.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"
#include "keel/optim/groups.h"
#include "tests/support.h"
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
    if (entry.settings != nullptr) rules.insert(entry.settings(OptimizerValues{}).index());
  }
  EXPECT_EQ(rules.size(), std::variant_size_v<UpdateSettings::variant>);
}

// Every number of every option is another one; a rule's settings are plain memory.
TEST(OptimizerCatalog, EveryNumberOfAnOptionStandsInTheSettingsOnce) {
  OptimizerValues values;
  std::map<std::string_view, std::vector<double>> numbers;
  double next = 0.01;
  const auto give = [&](std::string_view option, double& number) { numbers[option].push_back(number = next += 0.01); };
  const auto give_two = [&](std::string_view option, std::array<double, 2>& pair) {
    for (double& number : pair) give(option, number);
  };
  give_two("betas", values.betas);
  give_two("etas", values.etas);
  give_two("step_sizes", values.step_sizes);
  give_two("epsilons", values.epsilons);
  give("eps", values.eps);
  give("momentum", values.momentum);
  give("dampening", values.dampening);
  give("momentum_decay", values.momentum_decay);
  give("lr_decay", values.lr_decay);
  give("initial_accumulator", values.initial_accumulator);
  give("rho", values.rho);
  give("alpha", values.alpha);
  give("lambd", values.lambd);
  give("t0", values.t0);
  give("max_coeff", values.max_coeff);
  give("min_coeff", values.min_coeff);
  give("trust_coefficient", values.trust_coefficient);
  give("clip_threshold", values.clip_threshold);
  give("decay_rate", values.decay_rate);
  give("beta1", values.beta1);
  give("adamw_lr_factor", values.adamw_lr_factor);
  give("weight_lr_power", values.weight_lr_power);
  give("r", values.r);
  for (const OptimizerEntry& entry : optimizers()) {
    if (entry.settings == nullptr) continue;
    visit_rule(
        [&](const auto& settings) {
          std::vector<std::byte> bytes(sizeof settings);
          std::memcpy(bytes.data(), &settings, sizeof settings);
          for (const auto& [option, all] : numbers)
            for (const double number : all) {
              int found = 0;
              for (std::size_t at = 0; at + sizeof number <= bytes.size(); at += sizeof number)
                found += std::memcmp(bytes.data() + at, &number, sizeof number) == 0 ? 1 : 0;
              EXPECT_EQ(found, entry.has(option) ? 1 : 0) << entry.name << ' ' << option;
            }
        },
        entry.settings(values));
  }
}

TEST(OptimizerCatalog, SaysOfEachOptimizerWhatItRequires) {
  std::set<std::string_view> closures, by_rows, whole, matrices, averages, blocks;
  for (const OptimizerEntry& entry : optimizers()) {
    const OptimizerRequirements needs = make_optimizer(entry)->requirements();
    EXPECT_EQ(needs.settled(), entry.requirements) << entry.name;
    EXPECT_EQ(needs.closure, entry.make != nullptr) << entry.name;
    EXPECT_TRUE(needs.passes == 0 || needs.one_by_one) << entry.name;
    if (entry.has("stochastic_rounding")) {
      EXPECT_TRUE(needs.master) << entry.name;
      EXPECT_FALSE(make_optimizer(entry, {.stochastic_rounding = true})->requirements().master) << entry.name;
    }
    if (needs.closure) closures.insert(entry.name);
    if (needs.rows) by_rows.insert(entry.name);
    if (needs.passes > 0) whole.insert(entry.name);
    if (needs.matrices) matrices.insert(entry.name);
    if (needs.averages) averages.insert(entry.name);
    if (needs.block > 1) blocks.insert(entry.name);
  }
  EXPECT_EQ(closures, (std::set<std::string_view>{"LBFGS"}));
  EXPECT_EQ(by_rows, (std::set<std::string_view>{"SparseAdam"}));
  EXPECT_EQ(whole, (std::set<std::string_view>{"Adafactor", "LAMB", "LARS"}));
  EXPECT_EQ(matrices, (std::set<std::string_view>{"Muon"}));
  EXPECT_EQ(averages, (std::set<std::string_view>{"ScheduleFreeAdamW"}));
  EXPECT_EQ(blocks, (std::set<std::string_view>{"Adam8bit", "AdamW8bit"}));
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

TEST(OptimizerCatalog, WhatIsNotSetIsTheOptimizersDefault) {
  const OptimizerValues adam = with_defaults(find_optimizer("Adam"), {.weight_decay = 0.25, .amsgrad = true});
  EXPECT_EQ(adam.betas, (std::array{0.9, 0.999}));
  EXPECT_EQ(adam.eps, 1e-8);
  EXPECT_EQ(adam.weight_decay, 0.25);
  EXPECT_TRUE(adam.amsgrad);
  EXPECT_EQ(with_defaults(find_optimizer("Rprop"), {}).step_sizes, (std::array{1e-6, 50.0}));
  EXPECT_TRUE(with_defaults(find_optimizer("Adafactor"), {}).relative_step);
  EXPECT_EQ(with_defaults(find_optimizer("LBFGS"), {.line_search = LineSearchKind::strong_wolfe}).history, 100);
  EXPECT_EQ(error_of([] { make_optimizer(find_optimizer("Lion"), {.momentum = 0.9}); }), "Lion has no option momentum");
}

// What stands in the catalog is read as a whole, or refused.
TEST(OptimizerCatalog, ADefaultThatIsNoValueIsNamed) {
  const auto with = [](std::string_view option, std::string_view text) {
    OptimizerEntry entry = find_optimizer("SGD");
    entry.options = {{option, text}};
    return with_defaults(entry, {});
  };
  EXPECT_EQ(with("momentum", "0.5").momentum, 0.5);
  EXPECT_EQ(with("history", "7").history, 7);
  for (const std::string_view text : {"", "x", "1x", "1e999"})
    EXPECT_EQ(error_of([&] { with("momentum", text); }), concat("the default '", text, "' is no number"));
  EXPECT_TRUE(with("nesterov", "true").nesterov);
  EXPECT_FALSE(with("nesterov", "false").nesterov);
  EXPECT_EQ(error_of([&] { with("nesterov", "1"); }), "the default '1' is neither true nor false");
  EXPECT_EQ(with("line_search", "none").line_search, LineSearchKind::none);
  EXPECT_EQ(with("line_search", "strong_wolfe").line_search, LineSearchKind::strong_wolfe);
  EXPECT_EQ(error_of([&] { with("line_search", "armijo"); }), "the default 'armijo' is no line search");
  EXPECT_EQ(with("matrices", "hidden").matrices, MuonMatrices::hidden);
  EXPECT_EQ(with("matrices", "all").matrices, MuonMatrices::all);
  EXPECT_EQ(with("matrices", "none").matrices, MuonMatrices::none);
  for (const std::string_view text : {"", "al", "all|none", "hidden|"})
    EXPECT_EQ(error_of([&] { with("matrices", text); }), concat("the default '", text, "' is no choice"));
  EXPECT_EQ(with("betas", "[0.25, 0.5]").betas, (std::array{0.25, 0.5}));
}

TEST(OptimizerCatalog, NamesAreReadToTheirSixtyFourthLetter) {
  EXPECT_EQ(find_optimizer(std::string(60, '_') + "adam").name, "Adam");
  EXPECT_NE(error_of([] { find_optimizer(std::string(61, '_') + "adam"); }), "");
}

TEST(OptimizerCatalog, ItemsOfTwoListsAreLayersOfTheirOwn) {
  const std::string names[] = {"a.0.weight", "b.0.weight", "b.1.weight", "b.1.bias", "head.weight"};
  const LayerDepths depths = layer_depths(names);
  EXPECT_EQ(depths.deepest, 3);
  for (const auto& [name, depth] : {std::pair{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}})
    EXPECT_EQ(depths.of(names[name]), depth) << names[name];
}

TEST(OptimizerCatalog, EveryOptimizerMovesWeightsByItsDefaults) {
  const Context context = testing::context(1);
  for (const OptimizerEntry& entry : optimizers()) {
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(entry, {}, 1);
    if (optimizer->requirements().closure || optimizer->requirements().rows || optimizer->requirements().one_by_one)
      continue;
    ParameterRange range;
    range.parameter = testing::tensor_of(context, {2}, {1});
    range.gradient = testing::tensor_of(context, {0.5}, {1});
    if (optimizer->requirements().averages) range.master = kernels::clone(range.parameter);
    for (std::size_t kind = 0; kind < optimizer->state_names().size(); ++kind)
      range.state.push_back(kernels::full(context, {1}, optimizer->initial_state(kind)));
    const SharedNumber* const shared = optimizer->shared_number();
    optimizer->update(std::vector{range},
                      {.step = kernels::make_step_state(context, {.steps = 1, .taken = 1, .lr = 0.1}),
                       .shared = kernels::full(context, {1}, shared == nullptr ? 0 : shared->initial, DType::f64)});
    const double moved = 2 - range.parameter.item();
    EXPECT_TRUE(std::isfinite(moved) && moved > 0) << entry.name << " moved the weight by " << moved;
  }
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

std::vector<std::int64_t> depths_of(const std::vector<std::string>& names) {
  const LayerDepths depths = layer_depths(names);
  std::vector<std::int64_t> found;
  for (const std::string& name : names) found.push_back(depths.of(name));
  EXPECT_EQ(depths.deepest, found.back());
  return found;
}

TEST(ParameterGroups, DepthCountsTheItemsOfListsAndWhatStandsAroundThem) {
  using Depths = std::vector<std::int64_t>;
  EXPECT_EQ(depths_of({"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight", "h.1.ln_1.weight",
                       "ln_f.weight", "lm_head.weight"}),
            (Depths{0, 0, 1, 1, 2, 3, 3}));
  EXPECT_EQ(depths_of({"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.2.weight"}),
            (Depths{0, 0, 1, 2}));
  EXPECT_EQ(depths_of({"layers.0.weight", "layers.2.weight"}), (Depths{0, 1})) << "an item without parameters";
  EXPECT_EQ(depths_of({"stages.0.blocks.0.weight", "stages.0.blocks.1.weight", "stages.1.blocks.0.weight"}),
            (Depths{0, 0, 1}));
  EXPECT_EQ(depths_of({"encoder.0.weight", "middle.weight", "decoder.0.weight"}), (Depths{0, 1, 2}));
  EXPECT_EQ(depths_of({"h2.x1.weight", "bias"}), (Depths{0, 0})) << "no number stands by itself";
  EXPECT_THROW(layer_depths({}).of("weight"), Error);
}

TEST(ParameterGroups, RatesFallWithTheDistanceFromTheLastLayer) {
  const std::vector<std::string> names = {"wte.weight", "h.0.weight", "h.1.bias", "ln_f.weight"};
  const GroupRule rule = decay_by_depth(group_by_name({{.match = "bias", .lr_factor = 2}}), 0.5, layer_depths(names));
  EXPECT_EQ(rule("wte.weight", {4, 4}).lr_factor, 0.125);
  EXPECT_EQ(rule("h.0.weight", {4, 4}).lr_factor, 0.25);
  EXPECT_EQ(rule("h.1.bias", {4}).lr_factor, 1);
  EXPECT_EQ(rule("ln_f.weight", {4}).lr_factor, 1);
  EXPECT_EQ(rule("ln_f.weight", {4}).decay_factor, 0);
}

}  // namespace
}  // namespace keel
