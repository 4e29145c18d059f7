#include "keel/trainer/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "keel/runtime/error.h"
#include "keel/trainer/schema.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using Overrides = std::vector<std::string>;

// The message of the Error that the text must cause; empty when it is accepted.
std::string message_of(std::string_view yaml, const Overrides& overrides = {}) {
  try {
    parse_config(yaml, "c.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}

std::string with(std::string_view line) { return "steps: 100\ndata: {type: addition}\n" + std::string(line) + "\n"; }

TEST(Config, ReadsTheExampleOfTheDocumentation) {
  const Config config = parse_config(config_example(), "c.yaml");
  EXPECT_EQ(config.seed, 1u);
  EXPECT_EQ(config.steps, 2000);
  EXPECT_EQ(config.model.layers, 4);
  EXPECT_EQ(config.model.heads, 4);
  EXPECT_EQ(config.model.width, 128);
  EXPECT_EQ(config.model.block, 64);
  EXPECT_EQ(config.data.type, DataConfig::Type::text);
  EXPECT_EQ(config.data.path, "corpus.txt");
  EXPECT_EQ(config.data.tokenizer, DataConfig::Tokenizer::byte);
  EXPECT_EQ(config.data.validation, 0.1);
  EXPECT_EQ(config.batch.global, 48);
  EXPECT_EQ(config.batch.micro, 12);
  EXPECT_EQ(config.optimizer.type, "AdamW");
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.betas, (std::array{0.9, 0.99}));
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  ScheduleSettings schedule = default_schedule("cosine");
  schedule[ScheduleParameter::warmup] = {100};
  schedule[ScheduleParameter::min_lr] = {1e-4};
  EXPECT_EQ(config.scheduler.settings, schedule);
  EXPECT_EQ(config.eval.every, 250);
  EXPECT_EQ(config.checkpoint.every, 500);
  EXPECT_EQ(config.checkpoint.keep, 2);
  EXPECT_EQ(to_string(config.strategy), "bf16");
}

TEST(Config, DefaultsFollowFromOtherValues) {
  const Config config = parse_config("{steps: 30, seed: 7, data: {type: addition}, batch: {global: 20}}", "a/b.yaml");
  EXPECT_EQ(config.batch.micro, 20);
  EXPECT_EQ(config.scheduler.settings, default_schedule("cosine"));
  EXPECT_EQ(config.data.seed, 7u);
  EXPECT_EQ(config.run, "runs/b");
  EXPECT_EQ(config.clip, 1);
  EXPECT_EQ(config.optimizer.weight_decay, 0.01);
  EXPECT_EQ(parse_config(with("optimizer: {type: SGD}"), "c").optimizer.weight_decay, 0);
  EXPECT_EQ(config.data.path, "");  // does not apply, so it keeps the value of Config{}
}

TEST(Config, NamedModelsHaveThePublishedSizes) {
  const Config config = parse_config(with("model: {name: gpt2-xl, block: 256}"), "c.yaml");
  EXPECT_EQ(config.model.layers, 48);
  EXPECT_EQ(config.model.heads, 25);
  EXPECT_EQ(config.model.width, 1600);
  EXPECT_EQ(config.model.block, 256);
  EXPECT_EQ(config.model.vocabulary, 50257);
  EXPECT_EQ(message_of(with("model: {name: gpt2, layers: 3}")),
            "c.yaml:3: model.layers: applies only when model.name is custom, and model.name is gpt2; remove one of the "
            "two");
}

TEST(Config, OverridesReplaceValuesAndSections) {
  const Overrides overrides = {"optimizer.lr=3e-4", "model={width: 64, heads: 2}", "steps=5", "steps=6",
                               "data.type=text",    "data.path=my corpus.txt"};
  const Config config =
      parse_config("steps: 9\nmodel: {layers: 9, width: 90}\ndata: {type: addition}\n", "c", overrides);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.model.width, 64);
  EXPECT_EQ(config.model.layers, 4);  // the section was replaced, so this is the default again
  EXPECT_EQ(config.steps, 6);
  EXPECT_EQ(config.data.path, "my corpus.txt");
}

TEST(Config, TheDefaultsOfAnOptimizerAreThoseOfTheTable) {
  for (const OptimizerEntry& entry : optimizers()) {
    std::string all = concat("type: ", entry.name);
    for (const OptionDefault& option : entry.options) all += concat(", ", option.option, ": ", option.value);
    EXPECT_EQ(parse_config(with(concat("optimizer: {type: ", entry.name, "}")), "c"),
              parse_config(with(concat("optimizer: {", all, "}")), "c"))
        << entry.name;
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

struct Wrong {
  std::string yaml;
  std::string message;
};

TEST(Config, AGroupMayHaveOptionsOfItsOwn) {
  const Config config = parse_config(
      with("optimizer: {eps: 1e-6, groups: [{match: bias, betas: [0.5, 0.7]}, {match: ln}, {match: \"\", eps: 1e-4}]}"),
      "c");
  const std::vector<OptimizerOptions> options = group_options(config);
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

TEST(Config, EveryMistakeIsNamedWithItsPlace) {
  const Wrong cases[] = {
      {with("optimzer: {lr: 1}"), "c.yaml:3: unknown key 'optimzer.lr', did you mean 'optimizer.lr'?"},
      {with("optimizer: {max_lr: 1}"), "c.yaml:3: unknown key 'optimizer.max_lr', did you mean 'optimizer.lr'?"},
      {with("optimizer: {lr: 1, learning_rate: 1}"),
       "c.yaml:3: key 'optimizer.learning_rate' is another word for 'optimizer.lr', which is given, too"},
      {with("optimizer: {learning_rat: 1}"),
       "c.yaml:3: unknown key 'optimizer.learning_rat', did you mean 'optimizer.lr'?"},
      {with("checkpoint: {folder: x}"), "c.yaml:3: unknown key 'checkpoint.folder'; checkpoint has every, keep"},
      {with("lr: 1"), "c.yaml:3: unknown key 'lr', did you mean 'optimizer.lr'?"},
      {with("batch_size: 1"), "c.yaml:3: unknown key 'batch_size', did you mean 'batch.global'?"},
      {with("xylophone: 1"), "c.yaml:3: unknown key 'xylophone'; `keel train --help-config` lists all keys"},
      {with("seed: -1"), "c.yaml:3: seed: expects a whole number from 0 to 18446744073709551615, got '-1'"},
      {with("threads: 1.5"), "c.yaml:3: threads: expects a whole number from 0 to 4096, got '1.5'"},
      {with("clip: \"1\""), "c.yaml:3: clip: expects a number >= 0, got '1' in quotes, which make it a text"},
      {with("clip: nan"), "c.yaml:3: clip: expects a number >= 0, got 'nan'"},
      {with("clip: 1e999"), "c.yaml:3: clip: expects a number >= 0, got '1e999'"},
      {with("clip:"), "c.yaml:3: clip: expects a number >= 0, got nothing"},
      {with("clip: [1]"), "c.yaml:3: clip: expects a number >= 0, got a list"},
      {with("clip: {a: 1}"), "c.yaml:3: clip: expects a value, got a mapping"},
      {with("model: 3"), "c.yaml:3: model: is a section; write it as `model: {key: value, ...}`"},
      {with("model: {bias: yes}"), "c.yaml:3: model.bias: expects true or false, got 'yes'"},
      {with("model: {dropout: 1}"), "c.yaml:3: model.dropout: expects a number from 0 to below 1, got '1'"},
      {with("optimizer: {lr: 0}"), "c.yaml:3: optimizer.lr: expects a number > 0, got '0'"},
      {with("optimizer: {betas: [0.9]}"),
       "c.yaml:3: optimizer.betas: expects a list of two numbers from 0 to below 1, got a list"},
      {with("optimizer:\n  type: adamx"), "c.yaml:4: optimizer.type: there is no 'adamx'; did you mean 'adamw'?"},
      {with("optimizer: {momentum: 0.9}"),
       "c.yaml:3: optimizer.momentum: applies only when optimizer.type is SGD, RMSprop or LARS, and optimizer.type is "
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
       "c.yaml:3: optimizer.type: expects AdamW, SGD, Adam, HFAdamW, TFAdamW, SparseAdam, Adamax, NAdam, RAdam, Adagrad, "
       "Adadelta, RMSprop, Rprop, ASGD, Lion, Adam8bit, AdamW8bit, LAMB, LARS, Adafactor or LBFGS, got 'OneBitLamb'"},
      {with("optimizer:\n  type: LBFGS\n  max_iter: 0"),
       "c.yaml:5: optimizer.max_iterations: expects a whole number from 1 to 100000, got '0'"},
      {with("optimizer: {type: LBFGS, history: 0}"),
       "c.yaml:3: optimizer.history: expects a whole number from 1 to 100000, got '0'"},
      {with("optimizer: {type: LBFGS, line_search: wolfe}"),
       "c.yaml:3: optimizer.line_search: expects none or strong_wolfe, got 'wolfe'"},
      {with("optimizer: {type: LBFGS, weight_decay: 0.1}"),
       "c.yaml:3: optimizer.weight_decay: applies only when optimizer.type is AdamW, HFAdamW, TFAdamW, AdamW8bit, "
       "LAMB, SGD, Adam, Adamax, NAdam, RAdam, Adagrad, Adadelta, RMSprop, ASGD, Lion, Adam8bit, LARS or Adafactor, "
       "and optimizer.type is LBFGS; remove one of the two"},
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
       "sharding.offload_optimizer to true"},
      {with("optimizer: {type: LBFGS}\nscheduler: {type: OneCycleLR, cycle_momentum: true}"),
       "c.yaml:4: scheduler.cycle_momentum: LBFGS has neither momentum nor betas; set cycle_momentum to false"},
      {with("optimizer: {type: LARS, trust_coefficient: 0}"),
       "c.yaml:3: optimizer.trust_coefficient: expects a number > 0, got '0'"},
      {with("optimizer: {type: Rprop, weight_decay: 0.1}"),
       "c.yaml:3: optimizer.weight_decay: applies only when optimizer.type is AdamW, HFAdamW, TFAdamW, AdamW8bit, "
       "LAMB, "
       "SGD, Adam, Adamax, NAdam, RAdam, Adagrad, Adadelta, RMSprop, ASGD, Lion, Adam8bit, LARS or Adafactor, and "
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
      {with("scheduler: {warmup: 101}"),
       "c.yaml:3: scheduler.warmup: 101 warm-up steps do not fit into the schedule's 100"},
      {with("scheduler: {type: constant, warmup: 101}"),
       "c.yaml:3: scheduler.warmup: 101 warm-up steps do not fit into 100 steps"},
      {with("model: {heads: 3}"),
       "c.yaml:3: model.heads: 3 heads do not divide the width 128; choose a width that is a multiple"},
      {with("steps: 3"), "c.yaml:3: key 'steps' is given twice, first on line 1"},
      {with("clip: 1\n\tseed: 1"), "c.yaml:4: a tab is used as indentation; use spaces"},
      {with("---\nclip: 1"), "c.yaml:4: a second document starts (---); keep one"},
      {with("clip: &a 1"), "c.yaml:3: anchors and aliases (&, *) are not used here; write the value out"},
      {with("clip: !!float 1"), "c.yaml:3: tags (!) are not used here; write the plain value"},
      {with("%YAML 1.2"), "c.yaml:3: directives (%) are not used here"},
      {with("run: 'x\nclip: 1"), "c.yaml:3: a quote or bracket is opened and not closed"},
      {with("model: {heads: 4"), "c.yaml:3: a quote or bracket is opened and not closed"},
      {with("'a\\tb': 1"), "c.yaml:3: unknown key 'a\\tb'; `keel train --help-config` lists all keys"},
      {with("\"a\\tb\": 1"), "c.yaml:3: unknown key 'a\\x09b'; `keel train --help-config` lists all keys"},
      {with("[a]: 1"), "c.yaml:3: a key must be a word, as in `steps: 100`"},
      {with("optimizer.lr: 1"),
       "c.yaml:3: key 'optimizer.lr' is written with a dot; nest it, as in `optimizer: {lr: 1e-3}`"},
      {with("strategy: zero4-bf16"),
       "c.yaml:3: strategy: expects fp32, bf16, fp16 or auto, alone or after ddp-, zero1-, zero2- or zero3-, as in "
       "zero2-bf16 (`keel strats --all` lists every name); got 'zero4-bf16'; did you mean 'zero1-bf16'?"},
      {with("run: ''"), "c.yaml:3: run: is empty"},
      {"- steps", "c.yaml:1: expects keys with values, as in `steps: 100`"},
      {"", "c.yaml: steps: is missing, and has no default\nc.yaml: data.path: is missing, and has no default"},
      {"steps: 1\ndata: 3", "c.yaml:2: data: is a section; write it as `data: {key: value, ...}`"},
      {"data: {type: addition}", "c.yaml: steps: is missing, and has no default"},
      {"steps: 1\ndata:\n  type: tokens", "c.yaml:3: data.path: is missing, and has no default"},
      {std::string("steps: 1\0", 9), "c.yaml:1: holds zero bytes: it is not a text file"},
  };
  for (const Wrong& wrong : cases) EXPECT_EQ(message_of(wrong.yaml), wrong.message) << wrong.yaml;
}

TEST(Config, SyntaxErrorsNameTheirLine) {
  for (const char* line : {"a: b: c", "]", "clip: @1"}) {
    const std::string message = message_of(with(line));
    EXPECT_TRUE(message.starts_with("c.yaml:")) << message;
    EXPECT_NE(message.find("not valid YAML: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one mistake, one line: " << message;
  }
}

TEST(Config, AllMistakesAreReportedTogetherSortedByLine) {
  EXPECT_EQ(message_of("seed: x\nbatch: {global: 0, micro: 3}\nmodell: {}\nclip: -1\n", {"threads=x", "bogus"}),
            "c.yaml:1: seed: expects a whole number from 0 to 18446744073709551615, got 'x'\n"
            "c.yaml:2: batch.global: expects a whole number from 1 to 16777216, got '0'\n"
            "c.yaml:3: unknown key 'modell', did you mean 'model'?\n"
            "c.yaml:4: clip: expects a number >= 0, got '-1'\n"
            "c.yaml: steps: is missing, and has no default\n"
            "c.yaml: data.path: is missing, and has no default\n"
            "command line, 'threads=x': threads: expects a whole number from 0 to 4096, got 'x'\n"
            "command line, 'bogus': expects KEY=VALUE, as in optimizer.lr=3e-4");
}

TEST(Config, MistakesOfTheCommandLineNameTheOverride) {
  const Wrong cases[] = {
      {"optimizer.lr=x", "optimizer.lr: expects a number > 0, got 'x'"},
      {"optimizer.lr=", "optimizer.lr: expects a number > 0, got nothing"},
      {"optimizer.lrr=1", "unknown key 'optimizer.lrr', did you mean 'optimizer.lr'?"},
      {"model={widht: 3}", "unknown key 'model.widht', did you mean 'model.width'?"},
      {"model={heads: 3", "model: a quote or bracket is opened and not closed"},
      {"=1", "expects KEY=VALUE, as in optimizer.lr=3e-4"},
  };
  for (const Wrong& wrong : cases)
    EXPECT_EQ(message_of(with(""), {wrong.yaml}), "command line, '" + wrong.yaml + "': " + wrong.message);
}

TEST(Config, ResolvedYamlLoadsToTheSameConfig) {
  const std::string files[] = {
      std::string(config_example()),
      with(""),
      with("seed: 18446744073709551615\nrun: \"a b: #\\\"\\\\\\n\\t'\"\nresume: 'null'"),
      with("optimizer: {type: SGD, momentum: 0.9, nesterov: true, lr: 0.30000000000000004}\nscheduler: {type: "
           "constant}"),
      with("model: {name: gpt2-large, vocabulary: 300}\nstrategy: zero3-auto\ndevice: cpu\nkernels: plain"),
      "steps: 1\ndata: {type: tokens, path: ~/x y, validation: 0}\ntime_limit: 1e-3",
  };
  for (const std::string& yaml : files) {
    const Config config = parse_config(yaml, "first.yaml");
    const std::string resolved = to_yaml(config);
    EXPECT_EQ(parse_config(resolved, "second.yaml"), config) << resolved;
    EXPECT_EQ(to_yaml(parse_config(resolved, "second.yaml")), resolved);
  }
}

TEST(Config, LoadsAFileAndRefusesOneThatCannotBeRead) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "tiny run.yaml";
  std::ofstream(file) << with("");
  EXPECT_EQ(load_config(file, {"clip=2"}).clip, 2);
  EXPECT_EQ(load_config(file).run, "runs/tiny run");
  std::ofstream(file) << std::string(100000, '#');
  EXPECT_THROW(load_config(file), Error);
  std::filesystem::remove(file);
  for (const std::string& path : {file, folder.path()}) try {
      load_config(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
    }
}

// Every single-byte deletion, and seeded cuts, swaps and insertions of YAML's own characters: each text gives a
// Config that survives the round trip, or an Error whose lines all name a place.
TEST(Config, MutatedFilesGiveAConfigOrAnError) {
  const std::string original = std::string(config_example()) + "clip: 1.0\nresume: never # comment\nrun: 'a''b'\n";
  const std::vector<std::string> pieces = {"{",        "}",    "[",     "]",   ":",  ": ", ",",    "\n",
                                           "\n\n",     "- ",   "? ",    "|\n", ">",  "&a", "*a",   "!!x ",
                                           "%",        "@",    "`",     "'",   "\"", "\\", "\t",   "#",
                                           "---",      "...",  "<<",    "~",   "-",  "\r", "\x80", "\xef\xbb\xbf",
                                           "\xff\xfe", "null", "1e400", "-0"};
  std::mt19937_64 random(7);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int accepted = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = original;
    if (round < static_cast<int>(original.size())) text.erase(static_cast<std::size_t>(round), 1);
    else
      for (std::size_t edits = 1 + pick(4); edits > 0 && !text.empty(); --edits) {
        const std::size_t at = pick(text.size());
        switch (pick(5)) {
          case 0: text.insert(at, pieces[pick(pieces.size())]); break;
          case 1: text.erase(at, 1 + pick(20)); break;
          case 2: text[at] = static_cast<char>(random()); break;
          case 3: std::swap(text[at], text[pick(text.size())]); break;
          default: text.insert(at, text.substr(pick(text.size()), 1 + pick(40))); break;
        }
      }
    try {
      const Config config = parse_config(text, "c.yaml");
      ++accepted;
      ASSERT_EQ(parse_config(to_yaml(config), "c.yaml"), config) << text;
    } catch (const Error& error) {
      std::istringstream lines(error.what());
      for (std::string line; std::getline(lines, line);) ASSERT_TRUE(line.starts_with("c.yaml:")) << line;
    }
  }
  EXPECT_GT(accepted, kRounds / 100);  // or the mutations would be too coarse to test anything
  EXPECT_LT(accepted, kRounds);
}

TEST(Config, DeepAndLongFilesAreRefusedQuickly) {
  for (const char* piece : {"[", "{", "{a: ", "- ", "? ", "a: [", "'", "&a [*a,", "!", "a:\n b:\n"}) {
    std::string text;
    while (text.size() + 8 < 60000) text += piece;
    EXPECT_THROW(parse_config(text, "c.yaml"), Error) << piece;
  }
  std::string keys;
  for (int i = 0; i < 8000; ++i) keys += concat("k", i, ":\n");
  EXPECT_THROW(parse_config(keys, "c.yaml"), Error);
}

}  // namespace
}  // namespace keel
