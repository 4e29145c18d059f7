#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "keel/config/yaml_reader.h"
#include "keel/models/gpt.h"
#include "keel/models/model_keys.h"
#include "keel/nn/layers.h"
#include "keel/runtime/error.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/schema.h"
#include "keel/trainer/schema_rows.h"
#include "tests/error_of.h"
#include "tests/trainer/config_mistakes.h"

namespace keel {
namespace {

using testing::error_of;
using testing::message_of;
using testing::Wrong;
using P = ScheduleParameter;

std::string text_of(std::string_view scheduler) {
  return concat("steps: 100\ndata: {type: addition}\noptimizer: {lr: 0.01}\nscheduler: {", scheduler, "}\n");
}
Config scheduled(std::string_view scheduler) { return parse_config(text_of(scheduler), "c.yaml"); }

void expect_same(std::string_view scheduler, std::string_view other) {
  EXPECT_EQ(scheduled(scheduler), scheduled(other)) << scheduler << " and " << other;
}

TEST(ScheduleConfig, NamesOfOtherTrainersMeanTheSame) {
  expect_same("type: LinearWithWarmup, num_warmup_steps: 7", "type: linear_with_warmup, warmup: 7");
  expect_same("type: CosineWithWarmup, warmup_ratio: 0.1", "type: cosine_with_warmup, warmup: 0.1");
  expect_same("type: linear_decay, warmup_proportion: 0.01", "type: linear_with_warmup, warmup: 0.01");
  expect_same("type: InverseSQRT, num_warmup_steps: 0.1", "type: inverse_sqrt, warmup: 0.1");
  expect_same("type: cosine, warmup_ratio: 1", "type: cosine, warmup: 1.0");
  expect_same("type: CosineAnnealingLR, eta_min: 1e-4", "type: CosineAnnealingLR, min_lr: 1e-4");
  expect_same("type: sqrt_decay, num_constant_steps: 9", "type: sqrt_decay, constant: 9");
  expect_same("type: WarmupLR, params: {warmup_min_lr: 0, warmup_max_lr: 1e-3, warmup_num_steps: 10}",
              "type: WarmupLR, base_lr: 0, max_lr: 1e-3, warmup: 10");
  expect_same("type: StepLR, step_size: 2, step_scheduler_per_epoch: true, steps_per_epoch: 5",
              "type: StepLR, step_size: 2, interval: epoch, steps_per_epoch: 5");
  expect_same("type: StepLR, step_size: 2, step_scheduler_per_epoch: false", "type: StepLR, step_size: 2");
  expect_same("type: StepLR, step_size: 2, scheduler_frequency: 3", "type: StepLR, step_size: 2, frequency: 3");
  const Config replaced = parse_config(text_of("warmup: 3"), "c.yaml", {"scheduler.num_warmup_steps=8"});
  EXPECT_EQ(replaced, scheduled("warmup: 8"));
}

TEST(ScheduleConfig, EveryScheduleWritesWhatItReads) {
  const char* schedules[] = {
      ("type: sequence, milestones: [20, 60], schedules: [{type: LinearLR, total_iters: 20}, {type: product, "
       "schedules: "
       "[{type: ExponentialLR, gamma: 0.9}, {type: cosine, warmup: 0.5}]}, {type: StepLR, step_size: 3}]"),
      "type: wsd, warmup: 0.1, decay: 20, decay_type: 1-sqrt, stable: 0.3",
      "type: cosine, warmup: 1.0, min_lr: 1e-3",
      "type: CyclicLR, base_lr: 1e-4, mode: exp_range, gamma: 0.99, cycle_momentum: false",
      "type: MultiStepLR, milestones: [3, 5]",
      "type: linear, interval: epoch, steps_per_epoch: 10, steps: 3, warmup: 1"};
  for (const char* schedule : schedules) {
    const Config config = scheduled(schedule);
    EXPECT_EQ(parse_config(to_yaml(config), "again"), config) << to_yaml(config);
  }
  for (const ScheduleKind& kind : schedule_kinds()) {
    std::string required = concat("type: ", kind.name, ", ");
    for (const ScheduleUse& use : kind.parameters) {
      if (use.parameter == P::warmup) required += "warmup: 10, ";
      if (!use.standard.empty() || use.parameter == P::schedules) continue;
      required += concat(schedule_parameter(use.parameter).name,
                         use.parameter == P::milestones ? ": [3]"
                         : use.parameter == P::base_lr  ? ": 0.001"
                         : use.parameter == P::gamma    ? ": 0.5"
                                                        : ": 5",
                         ", ");
    }
    if (kind.find(P::schedules) != nullptr) required += "schedules: [{type: constant}, {type: StepLR, step_size: 2}], ";
    const Config config = scheduled(required.substr(0, required.size() - 2));
    EXPECT_EQ(parse_config(to_yaml(config), "again"), config) << to_yaml(config);
  }
}

TEST(ScheduleConfig, EveryMistakeIsNamedWithItsLine) {
  const std::string head = "steps: 100\ndata: {type: addition}\nscheduler:\n";
  const Wrong cases[] = {
      {head + "  type: CosineWithWarmUp",
       "c.yaml:4: scheduler.type: there is no 'CosineWithWarmUp'; did you mean 'CosineWithWarmup'?"},
      {head + "  type: StepLR\n  step_sise: 3",
       "c.yaml:4: scheduler.step_size: is missing, and has no default\n"
       "c.yaml:5: unknown key 'scheduler.step_sise', did you mean 'scheduler.step_size'?"},
      {head + "  type: StepLR\n  step_size: 0", "c.yaml:5: scheduler.step_size: expects a whole number >= 1, got '0'"},
      {head + "  type: ExponentialLR\n  gamma: -0.5", "c.yaml:5: scheduler.gamma: expects a number > 0, got '-0.5'"},
      {head + "  type: ExponentialLR\n  gamma: \"1\"",
       "c.yaml:5: scheduler.gamma: expects a number > 0, got '1' in quotes, which make it a text"},
      {head + "  type: OneCycleLR\n  anneal: linaer",
       "c.yaml:5: scheduler.anneal: expects cos or linear, got 'linaer'; did you mean 'linear'?"},
      {head + "  type: OneCycleLR\n  total_steps: 99",
       "c.yaml:5: scheduler.steps: OneCycleLR ends after 99 steps, and the run has 100"},
      {head + "  type: polynomial_decay\n  steps: 60",
       "c.yaml:5: scheduler.steps: polynomial_decay ends after 60 steps, and the run has 100"},
      {head + "  type: MultiStepLR\n  milestones: 3",
       "c.yaml:5: scheduler.milestones: expects a list of whole numbers >= 1, got '3'"},
      {head + "  type: MultiStepLR\n  milestones: [3, 1]", "c.yaml:5: scheduler.milestones: must rise"},
      {head + "  warmup_ratio: 2",
       "c.yaml:4: scheduler.warmup: expects a whole number >= 0, or a ratio from 0.0 to 1.0, got '2.0'"},
      {head + "  warmup: 3\n  warmup_ratio: 0.1",
       "c.yaml:5: key 'scheduler.warmup_ratio' is another word for 'scheduler.warmup', which is given, too"},
      {head + "  gamma: 0.1",
       "c.yaml:4: scheduler.gamma: applies only when scheduler.type is StepLR, MultiStepLR, ExponentialLR or CyclicLR, "
       "and scheduler.type is cosine; remove one of the two"},
      {head + "  interval: epoch", "c.yaml:4: scheduler.steps_per_epoch: is missing, and has no default"},
      {head + "  type: product\n  schedules:\n    - {type: constant}\n    - type: StepLR\n      step_size: 3\n      "
              "gama: 1",
       "c.yaml:9: scheduler.schedules[1].gama: StepLR has no such parameter; did you mean 'gamma'?"},
      {head + "  type: product\n  schedules: []",
       "c.yaml:5: scheduler.schedules: expects a list of schedules, got a list"},
      {head + "  type: product\n  schedules: {type: constant}",
       "c.yaml:5: scheduler.schedules: expects a list of schedules, got a mapping"},
      {head + "  type: product\n  schedules: constant",
       "c.yaml:5: scheduler.schedules: expects a list of schedules, got 'constant'"},
      {head + "  type: MultiStepLR\n  milestones: []",
       "c.yaml:5: scheduler.milestones: expects a list of whole numbers >= 1, got a list"},
      {head + "  type: product\n  schedules:\n    - {type: constant}\n    - {type: StepLRR}",
       "c.yaml:7: scheduler.schedules[1].type: there is no schedule 'StepLRR', did you mean 'StepLR'?"},
      {head + "  type: product\n  schedules:\n    - {type: constant}\n    - {type: StepLR}",
       "c.yaml:7: scheduler.schedules[1].step_size: is missing, and has no default"},
      {head + "  type: product\n  schedules:\n    - type: product\n      schedules: [{type: StepLR, step_size: 0}]",
       "c.yaml:7: scheduler.schedules[0].schedules[0].step_size: expects a whole number >= 1, got '0'"},
      {head + "  type: product\n  schedules:\n    - {type: cosine, warmup: 200}",
       "c.yaml:5: scheduler.schedules[0].warmup: 200 warm-up steps do not fit into the schedule's 100"},
      {head + "  type: sequence\n  milestones: [3]\n  schedules: [StepLR]",
       "c.yaml:6: scheduler.schedules[0]: expects a schedule, as in {type: StepLR, step_size: 30}"},
  };
  for (const Wrong& wrong : cases) EXPECT_EQ(message_of(wrong.yaml), wrong.message) << wrong.yaml;
}

// A value of another kind is none, whatever the parameter, and so is one in a list.
TEST(ScheduleConfig, EveryParameterRefusesWhatIsNoneOfItsValues) {
  const std::pair<std::string, std::string> values[] = {
      {"x!", "'x!'"}, {"3x", "'3x'"}, {"'3'", "'3' in quotes, which make it a text"}, {"{a: 1}", "a mapping"}};
  for (const ScheduleKind& kind : schedule_kinds())
    for (const ScheduleUse& use : kind.parameters) {
      const auto expect_refused = [&](const std::string& text, const std::string& got) {
        const YamlDocument document = read_yaml(concat("value: ", text));
        ScheduleSettings settings;
        const std::string told =
            error_of([&] { set_schedule_value(use, settings, document.root.entries.at(0).value); });
        EXPECT_TRUE(told.starts_with(concat("expects ", describe_schedule_values(use), ", got ", got)))
            << kind.name << '.' << schedule_parameter(use.parameter).name << ": " << told;
      };
      for (const auto& [text, got] : values) expect_refused(text, got);
      expect_refused("", "nothing");
      expect_refused("[]", "a list");
      if (use.parameter != P::milestones) continue;
      for (const auto& [text, got] : values) expect_refused(concat("[3, ", text, "]"), got);
      for (const std::string text : {"3.5", "0", "-1", "1e3"})
        expect_refused(concat("[", text, "]"), concat("'", text, "'"));
    }
}

TEST(LearningRate, FollowsEpochsAndFrequencyByTheStepsThatWereTaken) {
  const LearningRate rate(
      scheduled("type: StepLR, step_size: 2, gamma: 0.5, interval: epoch, steps_per_epoch: 7, "
                "frequency: 2"));
  for (std::int64_t done = 0; done < 100; ++done)
    EXPECT_DOUBLE_EQ(rate.rate(done), 0.01 * std::pow(0.5, static_cast<double>(done / 14 / 2)));
  // All of the run is 15 epochs of 7 steps, the last of them not whole; so `auto` is 15.
  const LearningRate linear(scheduled("type: linear_with_warmup, interval: epoch, steps_per_epoch: 7"));
  for (std::int64_t done = 0; done < 100; ++done)
    EXPECT_DOUBLE_EQ(linear.rate(done), 0.01 * (1 - static_cast<double>(done / 7) / 15));
}

TEST(LearningRate, TheTableOfATrainingHasTheRatesOfItsSteps) {
  const Context context = Context::create({});
  for (const char* schedule : {"type: constant, warmup: 9", "type: cosine, steps: 60", "type: StepLR, step_size: 9",
                               "type: linear, interval: epoch, steps_per_epoch: 10, steps: 3"}) {
    const Config config = scheduled(schedule);
    const LearningRate rate(config);
    const Tensor table = make_curves(config, context).rates;
    ASSERT_LE(table.numel(), config.steps);
    for (std::int64_t done = 0; done < config.steps; ++done)
      EXPECT_EQ(table.data<double>()[std::min(done, table.numel() - 1)], rate.rate(done)) << schedule;
  }
}

TEST(LearningRate, TheTableOfATrainingHasTheMomentumOfItsSteps) {
  const Context context = Context::create({});
  EXPECT_FALSE(make_curves(scheduled("type: OneCycleLR, cycle_momentum: false"), context).momenta.defined());
  EXPECT_FALSE(make_curves(scheduled("type: cosine"), context).momenta.defined());
  for (const char* schedule : {"type: OneCycleLR", "type: CyclicLR, base_lr: 1e-4, step_size_up: 7",
                               "type: sequence, milestones: [20], schedules: [{type: CyclicLR, base_lr: 1e-4, "
                               "step_size_up: 7}, {type: cosine}]"}) {
    const Config config = scheduled(schedule);
    const LearningRate rate(config);
    const Tensor table = make_curves(config, context).momenta;
    for (std::int64_t done = 0; done < config.steps; ++done)
      EXPECT_EQ(table.data<double>()[std::min(done, table.numel() - 1)],
                rate.momentum(done).value_or(StepState::kOwnMomentum))
          << schedule;
  }
}

TEST(LearningRate, AnOptimizerKeepsWhatACycledMomentumNeeds) {
  const auto states_of = [](std::string_view type, std::string_view schedule) {
    return make_optimizer(parse_config(concat("{steps: 100, data: {type: addition}, optimizer: {lr: 0.01, type: ", type,
                                              "}, scheduler: {", schedule, "}}"),
                                       "c.yaml"))
        ->state_names();
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(states_of("SGD", "type: OneCycleLR"), Names{"momentum"});
  EXPECT_EQ(states_of("SGD", "type: OneCycleLR, cycle_momentum: false"), Names{});
  EXPECT_EQ(states_of("RMSprop", "type: OneCycleLR"), (Names{"square", "momentum"}));
  EXPECT_EQ(states_of("Adam", "type: OneCycleLR"), (Names{"m", "v"}));
}

TEST(LearningRate, AnOptimizerWithoutMomentumRefusesACycledOne) {
  const auto message = [](std::string_view scheduler) {
    return message_of(
        concat("steps: 100\ndata: {type: addition}\noptimizer: {lr: 0.01, type: Adagrad}\nscheduler:", scheduler));
  };
  const std::string problem = "cycle_momentum: Adagrad has neither momentum nor betas; set cycle_momentum to false";
  EXPECT_EQ(message(" {type: OneCycleLR}"), "c.yaml:1: scheduler." + problem);  // where the steps are
  EXPECT_EQ(message("\n  type: OneCycleLR\n  cycle_momentum: true"), "c.yaml:6: scheduler." + problem);
  EXPECT_EQ(message(" {type: OneCycleLR, cycle_momentum: false}"), "");
}

TEST(LearningRate, AnOptimizerOfOneVectorRefusesFactorsOfLayers) {
  const auto message = [](std::string_view decay) {
    return message_of(
        concat("steps: 100\ndata: {type: addition}\noptimizer: {type: LBFGS}\nscheduler:\n"
               "  type: polynomial_decay_layerwise\n  layer_decay: ",
               decay, "\n  warmup: 10"));
  };
  EXPECT_EQ(message("0.5"), "c.yaml:6: scheduler.layer_decay: LBFGS treats all parameters as one vector; set it to 1");
  EXPECT_EQ(message("1"), "");
}

TEST(LearningRate, LayersHaveTheirFactors) {
  const Config config = scheduled("type: polynomial_decay_layerwise, warmup: 10, min_lr: 0, layer_decay: 0.5");
  Gpt model({.vocabulary = 8, .block = 4, .layers = 4, .heads = 1, .width = 8});
  const GroupRule groups = engine_options(config, 1, model).groups;
  const auto factor = [&](std::string_view name) { return groups(name, {8, 8}).lr_factor; };
  EXPECT_EQ(factor("ln_f.weight"), 1);
  EXPECT_EQ(factor("h.3.attn.c_attn.weight"), 0.5);
  EXPECT_EQ(factor("h.0.mlp.c_fc.bias"), 0.0625);
  EXPECT_EQ(factor("wte.weight"), 0.03125);
  EXPECT_EQ(engine_options(scheduled("type: cosine"), 1, model).groups("wte.weight", {8, 8}).lr_factor, 1);
}

TEST(LearningRate, LayersOfAModelThatIsNoGptHaveTheirsFromItsOwnLayers) {
  const Config schedule = scheduled("type: polynomial_decay_layerwise, warmup: 10, min_lr: 0, layer_decay: 0.5");
  const Config optimizer =
      parse_config("steps: 100\ndata: {type: addition}\noptimizer: {layer_decay: 0.5}\n", "c.yaml");
  Mlp model({4, 4, 4, 4});
  for (const Config& config : {schedule, optimizer}) {
    const GroupRule groups = engine_options(config, 1, model).groups;
    EXPECT_EQ(groups("layers.0.weight", {4, 4}).lr_factor, 0.25);
    EXPECT_EQ(groups("layers.1.bias", {4}).lr_factor, 0.5);
    EXPECT_EQ(groups("layers.2.weight", {4, 4}).lr_factor, 1);
  }
}

TEST(LearningRate, LayersOfALlamaHaveTheirFactors) {
  const Config config = parse_config(
      "steps: 100\nmodel: {type: llama, layers: 3}\ndata: {type: addition}\noptimizer: {layer_decay: 0.5}\n", "c.yaml");
  const auto model = model_spec(config, 20)->make_decoder();
  const GroupRule groups = engine_options(config, 1, *model).groups;
  const auto factor = [&](std::string_view name) { return groups(name, {8, 8}).lr_factor; };
  EXPECT_EQ(factor("lm_head.weight"), 1);
  EXPECT_EQ(factor("model.norm.weight"), 1);
  EXPECT_EQ(factor("model.layers.2.mlp.gate_up_proj.weight"), 0.5);
  EXPECT_EQ(factor("model.layers.0.self_attn.qkv_proj.weight"), 0.125);
  EXPECT_EQ(factor("model.embed_tokens.weight"), 0.0625);
}

TEST(ScheduleConfig, TheCommittedReferencePageIsTheGeneratedOne) {
  std::ifstream file(KEEL_SOURCE_DIR "/docs/schedules.md", std::ios::binary);
  ASSERT_TRUE(file) << "docs/schedules.md is missing";
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), schedule_reference()) << "run `build/keel docs schedules > docs/schedules.md`";
}

}  // namespace
}  // namespace keel
