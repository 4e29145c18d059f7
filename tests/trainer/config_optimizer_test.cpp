// Configurations of optimizers and of their groups.

#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "keel/trainer/schema.h"
#include "tests/trainer/config_mistakes.h"

namespace keel {
namespace {

using namespace testing;

TEST(Config, TheDefaultsOfAnOptimizerAreThoseOfTheTable) {
  for (const OptimizerEntry& entry : optimizers()) {
    std::string all = concat("type: ", entry.name);
    for (const OptionDefault& option : entry.options) all += concat(", ", option.option, ": ", option.value);
    EXPECT_EQ(parse_config(with(concat("optimizer: {type: ", entry.name, "}")), "c"),
              parse_config(with(concat("optimizer: {", all, "}")), "c"))
        << entry.name;
    const OptimizerValues configured = parse_config(with(concat("optimizer: {type: ", entry.name, "}")), "c").optimizer;
    EXPECT_EQ(configured, with_defaults(entry, {})) << entry.name << " in C++";
    std::string lower(entry.name);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(parse_config(with(concat("optimizer: {type: ", lower, "}")), "c").optimizer.type, entry.name);
  }
  EXPECT_EQ(parse_config(with("optimizer: {type: Lion}"), "c").optimizer.lr, 1e-4);
  EXPECT_EQ(parse_config(with("optimizer: {type: Lion}"), "c").clip, 1);
  EXPECT_EQ(parse_config(with("optimizer: {type: LBFGS}"), "c").clip, 0);
  EXPECT_EQ(parse_config(with("optimizer: {type: FusedAdam}"), "c").optimizer.type, "AdamW");
}

TEST(Config, OptimizersAreReadAsOtherTrainersWriteThem) {
  const auto expect_same = [](std::string_view theirs, std::string_view ours) {
    EXPECT_EQ(parse_config(with(concat("optimizer: {", theirs, "}")), "c"),
              parse_config(with(concat("optimizer: {", ours, "}")), "c"));
  };
  expect_same("\"type\": \"Adam\", \"params\": {\"lr\": 3e-5, \"betas\": [0.8, 0.99], \"eps\": 1e-7}",
              "type: Adam, lr: 3e-5, betas: [0.8, 0.99], eps: 1e-7");
  expect_same("type: AdamW, params: {lr: 3e-5, weight_decay: 3e-7}", "lr: 3e-5, weight_decay: 3e-7");
  expect_same("type: adamw, learning_rate: 1e-4, adamw_epsilon: 1e-6, adamw_betas: [0.9, 0.98], adamw_amsgrad: true",
              "lr: 1e-4, eps: 1e-6, betas: [0.9, 0.98], amsgrad: true");
  expect_same("type: tf_adamw, tfadamw_epsilon: 1e-5", "type: TFAdamW, eps: 1e-5");
  expect_same("type: fuse_adam, fuse_adam_betas: [0.8, 0.9]", "type: AdamW, betas: [0.8, 0.9]");
  expect_same(
      "type: l-bfgs, max_iter: 9, max_eval: 12, tolerance_grad: 1e-6, history_size: 7, line_search_fn: strong_wolfe",
      "type: LBFGS, max_iterations: 9, max_evaluations: 12, tolerance_gradient: 1e-6, history: 7, "
      "line_search: strong_wolfe");
  expect_same("type: LBFGS, line_search_fn: None", "type: LBFGS, line_search: none");
}

TEST(Config, GroupsOfParametersReadAndWrite) {
  const std::string text = with(
      "optimizer:\n  layer_decay: 0.75\n  groups:\n    - match: \"bias|LayerNorm.weight\"\n      weight_decay: 0\n"
      "    - {match: \"\", lr_factor: 0.5}");
  const Config config = parse_config(text, "c");
  ASSERT_EQ(config.optimizer.groups.size(), 2u);
  EXPECT_EQ(config.optimizer.groups[0], (GroupPattern{.match = "bias|LayerNorm.weight", .weight_decay = 0}));
  EXPECT_EQ(config.optimizer.groups[1], (GroupPattern{.match = "", .lr_factor = 0.5}));
  EXPECT_EQ(parse_config(to_yaml(config), "c"), config);
  EXPECT_EQ(parse_config(text, "c", {"optimizer.groups=[]"}).optimizer.groups.size(), 0u);
}

TEST(Config, AGroupMayHaveOptionsOfItsOwn) {
  const Config config = parse_config(
      with("optimizer: {eps: 1e-6, groups: [{match: bias, betas: [0.5, 0.7]}, {match: ln}, {match: \"\", eps: 1e-4}]}"),
      "c");
  const std::vector<OptimizerValues> options = group_options(config);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].betas, (std::array{0.5, 0.7}));
  EXPECT_EQ(options[0].eps, 1e-6);
  EXPECT_EQ(options[1].betas, (std::array{0.9, 0.999}));
  EXPECT_EQ(options[1].eps, 1e-4);
  const GroupRule rule = group_by_name(config.optimizer.groups);
  EXPECT_EQ(rule("h.0.bias", {4}).variant, 1u);
  EXPECT_EQ(rule("h.0.ln.weight", {4}).variant, 0u);
  EXPECT_EQ(rule("wte.weight", {4, 4}).variant, 2u);
  EXPECT_EQ(parse_config(to_yaml(config), "c"), config);
}

TEST(Config, EveryMistakeOfAnOptimizerIsNamedWithItsPlace) {
  const Wrong cases[] = {
      {with("optimizer: {max_lr: 1}"), "c.yaml:3: unknown key 'optimizer.max_lr', did you mean 'optimizer.lr'?"},
      {with("optimizer: {lr: 1, learning_rate: 1}"),
       "c.yaml:3: key 'optimizer.learning_rate' is another word for 'optimizer.lr', which is given, too"},
      {with("optimizer: {learning_rat: 1}"),
       "c.yaml:3: unknown key 'optimizer.learning_rat', did you mean 'optimizer.lr'?"},
      {with("optimizer: {lr: 0}"), "c.yaml:3: optimizer.lr: expects a number > 0, got '0'"},
      {with("optimizer: {betas: [0.9]}"),
       "c.yaml:3: optimizer.betas: expects a list of two numbers from 0 to below 1, got a list"},
      {with("optimizer:\n  type: adamx"), "c.yaml:4: optimizer.type: there is no 'adamx'; did you mean 'adamw'?"},
      {with("optimizer: {momentum: 0.9}"),
       "c.yaml:3: optimizer.momentum: applies only when optimizer.type is SGD, RMSprop, LARS or Muon, and "
       "optimizer.type is "
       "AdamW; "
       "remove one of the two"},
      {with("optimizer: {type: SGD, nesterov: true}"),
       "c.yaml:3: optimizer.nesterov: needs optimizer.momentum above 0"},
      {with("optimizer: {type: SGD, nesterov: true, momentum: 0.9, dampening: 0.1}"),
       "c.yaml:3: optimizer.nesterov: needs optimizer.dampening 0"},
      {with("optimizer:\n  type: Adam\n  params: {lr: 1e-3, weight_decay: 0.1}"),
       "c.yaml:5: optimizer.type: Adam with params is DeepSpeed's, which decays the weights themselves unless "
       "adam_w_mode is false; say AdamW for that, or leave out params for a decay that is part of the gradient"},
      {with("optimizer: {type: Lion, lr: -1e-4}"), "c.yaml:3: optimizer.lr: expects a number > 0, got '-1e-4'"},
      {with("optimizer:\n  type: radam\n  betas: [0.9, 1]"),
       "c.yaml:5: optimizer.betas: expects a list of two numbers from 0 to below 1, got '1'"},
      {with("optimizer: {type: Rprop, etas: [1.5, 1.2]}"),
       "c.yaml:3: optimizer.etas: etas must be a factor between 0 and 1 and one above 1, got 1.5 and 1.2"},
      {with("optimizer: {type: Rprop, step_sizes: [3, 2]}"),
       "c.yaml:3: optimizer.etas: step sizes must go from small to large, got 3 and 2"},
      {with("optimizer: {type: LAMB, min_coeff: 1, max_coeff: 0.5}"),
       "c.yaml:3: optimizer.min_coeff: must not be above optimizer.max_coeff"},
      {with("optimizer: {type: Adafactor, lr: 1e-3}"),
       "c.yaml:3: optimizer.lr: does not go together with optimizer.relative_step, which makes the rate; leave lr out, "
       "or "
       "turn it off"},
      {with("optimizer: {type: Adafactor, relative_step: false}"),
       "c.yaml:3: optimizer.relative_step: without it optimizer.lr is needed"},
      {with("optimizer: {type: Adafactor, relative_step: false, lr: 1e-3, warmup_init: true}"),
       "c.yaml:3: optimizer.warmup_init: needs optimizer.relative_step"},
      {with("optimizer: {type: Adafactor, epsilons: [0, 1e-3]}"),
       "c.yaml:3: optimizer.epsilons: the first must be above 0"},
      {with("optimizer: {type: Adafactor, beta1: -0.8}"),
       "c.yaml:3: optimizer.beta1: expects a number from 0 to below 1, got '-0.8'"},
      {with("optimizer: {type: Adafactor, decay_rate: 0.8}"),
       "c.yaml:3: optimizer.decay_rate: expects a number <= 0, got '0.8'"},
      {with("optimizer: {type: OneBitLamb}"),
       "c.yaml:3: optimizer.type: expects AdamW, SGD, Adam, HFAdamW, TFAdamW, SparseAdam, Adamax, NAdam, RAdam, "
       "Adagrad, "
       "Adadelta, RMSprop, Rprop, ASGD, Lion, Adam8bit, AdamW8bit, LAMB, LARS, Adafactor, ScheduleFreeAdamW, Muon or "
       "LBFGS, got 'OneBitLamb'"},
      {with("optimizer:\n  type: LBFGS\n  max_iter: 0"),
       "c.yaml:5: optimizer.max_iterations: expects a whole number from 1 to 100000, got '0'"},
      {with("optimizer: {type: LBFGS, history: 0}"),
       "c.yaml:3: optimizer.history: expects a whole number from 1 to 100000, got '0'"},
      {with("optimizer: {type: LBFGS, line_search: wolfe}"),
       "c.yaml:3: optimizer.line_search: expects none or strong_wolfe, got 'wolfe'"},
      {with("optimizer: {type: LBFGS, weight_decay: 0.1}"),
       "c.yaml:3: optimizer.weight_decay: applies only when optimizer.type is AdamW, HFAdamW, TFAdamW, AdamW8bit, "
       "LAMB, SGD, Adam, Adamax, NAdam, RAdam, Adagrad, Adadelta, RMSprop, ASGD, Lion, Adam8bit, LARS, Adafactor, "
       "ScheduleFreeAdamW or Muon, and optimizer.type is LBFGS; remove one of the two"},
      {with("optimizer: {history: 5}"),
       "c.yaml:3: optimizer.history: applies only when optimizer.type is LBFGS, and optimizer.type is AdamW; remove "
       "one of the two"},
      {with("optimizer: {type: LBFGS}\nclip: 1"),
       "c.yaml:4: clip: does not go together with LBFGS: gradients are compared with each other, and must not be "
       "clipped; set it to 0"},
      {with("optimizer: {type: LBFGS, groups: [{match: bias, lr_factor: 2}]}"),
       "c.yaml:3: optimizer.groups: does not go together with LBFGS: all parameters are one vector"},
      {with("optimizer: {type: LBFGS, layer_decay: 0.9}"),
       "c.yaml:3: optimizer.layer_decay: does not go together with LBFGS: all parameters are one vector"},
      {with("optimizer: {type: LBFGS}\ngradient_compression: {type: int8}"),
       "c.yaml:4: gradient_compression.type: does not go together with LBFGS: what int8 leaves out depends on the "
       "steps before"},
      {with("optimizer: {type: LBFGS}\nstrategy: fp16"),
       "c.yaml:4: strategy: does not go together with LBFGS: fp16 needs a loss scale that skips steps"},
      {with("optimizer: {type: LBFGS}\nloss_scale: {type: dynamic}"),
       "c.yaml:4: loss_scale.type: does not go together with LBFGS: a dynamic loss scale skips steps"},
      {with("optimizer: {type: LBFGS}\ndevice: emulated:0"),
       "c.yaml:4: device: does not go together with LBFGS: it works in the processor's memory alone; set "
       "sharding.offload_optimizer to host"},
      {with("optimizer: {type: LBFGS}\nscheduler: {type: OneCycleLR, cycle_momentum: true}"),
       "c.yaml:4: scheduler.cycle_momentum: LBFGS has neither momentum nor betas; set cycle_momentum to false"},
      {with("optimizer: {type: Muon, matrices: some}"),
       "c.yaml:3: optimizer.matrices: expects hidden, all or none, got 'some'; did you mean 'none'?"},
      {with("optimizer: {type: ScheduleFreeAdamW}\nscheduler: {type: OneCycleLR, cycle_momentum: true}"),
       "c.yaml:4: scheduler.cycle_momentum: the weights of ScheduleFreeAdamW follow from one beta1 of all steps; set "
       "cycle_momentum to false"},
      {with("optimizer: {type: ScheduleFreeAdamW, groups: [{match: bias, betas: [0.5, 0.9]}]}"),
       "c.yaml:3: optimizer.groups: ScheduleFreeAdamW: no group can have options of its own, since all elements share "
       "a "
       "number that follows from them"},
      {with("optimizer: {type: LARS, trust_coefficient: 0}"),
       "c.yaml:3: optimizer.trust_coefficient: expects a number > 0, got '0'"},
      {with("optimizer: {type: Rprop, weight_decay: 0.1}"),
       "c.yaml:3: optimizer.weight_decay: applies only when optimizer.type is AdamW, HFAdamW, TFAdamW, AdamW8bit, "
       "LAMB, "
       "SGD, Adam, Adamax, NAdam, RAdam, Adagrad, Adadelta, RMSprop, ASGD, Lion, Adam8bit, LARS, Adafactor, "
       "ScheduleFreeAdamW or Muon, and "
       "optimizer.type is Rprop; remove one of the two"},
      {with("optimizer: {type: AdamW8bit, min_8bit_size: 100}"),
       "c.yaml:3: optimizer.min_8bit_size: expects a whole number >= 256, got '100'"},
      {with("optimizer: {type: Rprop, groups: [{match: bias, weight_decay: 1}]}"),
       "c.yaml:3: optimizer.groups: a group has a weight decay, but Rprop has none"},
      {with("optimizer: {groups: [{match: bias, momentum: 0.5}]}"),
       "c.yaml:3: optimizer.groups: the group 'bias' has momentum, which AdamW has not"},
      {with("optimizer: {groups: [{match: bias, betas: [0.5, 2]}]}"),
       "c.yaml:3: optimizer.groups: the group 'bias': betas expects a list of two numbers from 0 to below 1, got '2'"},
      {with("optimizer: {groups: [{match: bias, amsgrad: true}]}"),
       "c.yaml:3: optimizer.groups: AdamW: a group's options must not change what is kept for each element"},
      {with("optimizer: {type: Adafactor, groups: [{match: bias, clip_threshold: 2}]}"),
       "c.yaml:3: optimizer.groups: Adafactor: groups may differ in weight_decay and lr_factor alone"},
      {with("optimizer:\n  groups:\n    - match: bias\n      weight_decay: 0\n    - matches: head"),
       "c.yaml:7: optimizer.groups: a group has match, weight_decay, lr_factor and other options of the optimizer's, "
       "got "
       "'matches'; did you mean "
       "'match'?"},
      {with("optimizer:\n  groups:\n    - lr_factor: 2"),
       "c.yaml:5: optimizer.groups: a group needs match: parts of names with | between them"},
      {with("optimizer: {groups: [{match: bias, weight_decay: -1}]}"),
       "c.yaml:3: optimizer.groups: weight_decay expects a number >= 0"},
      {with("optimizer: {groups: bias}"), "c.yaml:3: optimizer.groups: expects a list of groups, got 'bias'"},
      {with("optimizer: {layer_decay: 0}"), "c.yaml:3: optimizer.layer_decay: expects a number above 0 to 1, got '0'"},
      {with("optimizer: {stochastic_rounding: true}\nstrategy: auto"),
       "c.yaml:4: optimizer.stochastic_rounding: needs strategy bf16: weights in fp32 are not rounded"},
      {with("optimizer: {lr: 1e-4}\nscheduler: {min_lr: 1e-3}"),
       "c.yaml:4: scheduler.min_lr: 0.001 is above optimizer.lr 0.0001; the rate falls from lr to min_lr"},
  };
  for (const Wrong& wrong : cases) EXPECT_EQ(message_of(wrong.yaml), wrong.message) << wrong.yaml;
}

}  // namespace
}  // namespace keel
