// The keys of keel's own callbacks: best checkpoints, early stopping, averages of weights.

#include <memory>
#include <string>
#include <vector>

#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

constexpr Condition kInAnyRun = {};
constexpr Condition kStopsEarly = {"early_stopping.patience", "0", true};
constexpr Condition kNamesBest = {"checkpoint.best", "none", true};
constexpr Condition kHasEma = {"ema.decay", "0", true};
constexpr Condition kHasSwa = {"swa.start", "0", true};
constexpr Range kNotBelowNone = {.low = 0};
constexpr Range kNotBelowOne = {.low = 1};

constexpr std::string_view kModes = "auto|min|max";
constexpr std::string_view kModeHelp =
    "Whether smaller or larger values are better, where a rule does not say it; auto: as the name says, such as loss "
    "or "
    "accuracy.";

template <class T, class F>
std::string flow_list(const std::vector<T>& values, const F& word) {
  std::string text;
  for (const T& each : values) text += concat(text.empty() ? "" : ", ", word(each));
  return concat('[', text, ']');
}

// One rule, or a list of them; where `none` is a word for an empty list, it may be one.
class RulesField : public KeyField {
 public:
  RulesField(Access<std::vector<std::string>> access, bool may_be_none) : access_(access), may_be_none_(may_be_none) {}
  std::string values(const SchemaRow& /*row*/) const override {
    return "values such as validation_loss or f1@dev@test>0.8+loss, or a list of such";
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    std::vector<std::string> rules;
    for (const YamlNode& each : node.kind == YamlNode::Kind::list ? node.items : std::vector<YamlNode>{node}) {
      if (each.kind != YamlNode::Kind::scalar) refuse_value(row, each);
      rules.push_back(MetricRule::parse(each.text).text());
    }
    if (rules.empty()) refuse_value(row, node);
    if (may_be_none_ && rules == std::vector<std::string>{"none"}) rules.clear();
    access_(config_of(settings)) = std::move(rules);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    const std::vector<std::string>& rules = access_(const_cast<Config&>(config_of(settings)));  // which is only read
    if (rules.empty()) return "none";
    return rules.size() == 1 ? text_to_yaml(rules[0]) : flow_list(rules, text_to_yaml);
  }

 private:
  Access<std::vector<std::string>> access_;
  bool may_be_none_;
};

// A whole number, or a list of them.
class NumbersField : public KeyField {
 public:
  explicit NumbersField(Access<std::vector<std::int64_t>> access) : access_(access) {}
  std::string values(const SchemaRow& row) const override {
    return concat(words_for(std::int64_t{}, row.range), ", or a list of such");
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    std::vector<std::int64_t> numbers;
    for (const YamlNode& each : node.kind == YamlNode::Kind::list ? node.items : std::vector<YamlNode>{node})
      read_value(row, each, numbers.emplace_back());
    if (numbers.empty()) refuse_value(row, node);
    access_(config_of(settings)) = std::move(numbers);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    const std::vector<std::int64_t>& numbers = access_(const_cast<Config&>(config_of(settings)));  // which is only read
    const auto word = [](std::int64_t number) { return std::to_string(number); };
    return numbers.size() == 1 ? word(numbers[0]) : flow_list(numbers, word);
  }

 private:
  Access<std::vector<std::int64_t>> access_;
};

template <auto access>
FieldPtr mode_field() {
  return choice_field([](const Config& config) { return static_cast<int>(access(const_cast<Config&>(config))); },
                      [](Config& config, int index) { access(config) = static_cast<MetricMode>(index); }, kModes);
}

}  // namespace

std::vector<SchemaRow> callback_rows() {
  const auto at_best = [](Config& c) -> std::vector<std::string>& { return c.checkpoint.best; };
  const auto at_best_mode = [](Config& c) -> MetricMode& { return c.checkpoint.best_mode; };
  const auto at_metrics = [](Config& c) -> std::vector<std::string>& { return c.early_stopping.metrics; };
  const auto at_patience = [](Config& c) -> std::vector<std::int64_t>& { return c.early_stopping.patience; };
  const auto at_mode = [](Config& c) -> MetricMode& { return c.early_stopping.mode; };
  std::vector<SchemaRow> rows = {
      {"checkpoint.best", std::make_shared<RulesField>(at_best, true), "none", kAny, kInAnyRun,
       "A value of evaluations, such as validation_loss: each evaluation that is better than all before makes a "
       "checkpoint, which stays, and which checkpoints/best names; none: no such one. Of several values, as in "
       "f1+loss, "
       "all must be better; f1@dev@test is the mean of these sets, f1>0.8 counts only above 0.8, and cost:min says "
       "which values are better. Each rule of a list has its own best checkpoint (docs/checkpoints.md).",
       "best_metric|monitor|metric_for_best_model"},
      {"checkpoint.best_mode", mode_field<at_best_mode>(), "auto", kAny, kNamesBest, kModeHelp,
       "greater_is_better|monitor_direction"},
      {"early_stopping.patience", std::make_shared<NumbersField>(at_patience), "0", kNotBelowNone, kInAnyRun,
       "The run ends after so many evaluations in a row that are no better than the best one before; 0: it does not. A "
       "list has a number for each rule of early_stopping.metric, and the run ends where none is left."},
      {"early_stopping.metric", std::make_shared<RulesField>(at_metrics, false), "validation_loss", kAny, kStopsEarly,
       "The value of evaluations that is meant, by its name in metrics.jsonl, or a rule or list of rules as in "
       "checkpoint.best.",
       "monitor"},
      {"early_stopping.min_delta", member(+[](Config& c) -> double& { return c.early_stopping.min_delta; }), "0",
       kNotBelowNone, kStopsEarly, "A gain of less does not count.", "threshold"},
      {"early_stopping.mode", mode_field<at_mode>(), "auto", kAny, kStopsEarly, kModeHelp, "monitor_direction"},
      {"ema.decay", member(+[](Config& c) -> double& { return c.ema.decay; }), "0", kFraction, kInAnyRun,
       "After each step, an average of the weights in fp32 keeps this share of itself, and takes the rest from the "
       "weights: 0.999, for instance. It is kept in checkpoints; `keel get --ema` writes it. 0: no average.",
       "ema_decay|model_ema_decay"},
      {"ema.warmup", member(+[](Config& c) -> bool& { return c.ema.warmup; }), "true", kAny, kHasEma,
       "The share is at most (1 + t) / (10 + t) at update t, from 0, so that the first weights are soon forgotten."},
      {"ema.evaluate", member(+[](Config& c) -> bool& { return c.ema.evaluates; }), "true", kAny, kHasEma,
       "Evaluations are of the average."},
      {"swa.start", member(+[](Config& c) -> Length& { return c.swa.start; }), "0", kNotBelowNone, kInAnyRun,
       "The step after which weights first join their mean (stochastic weight averaging), which is kept in fp32 and in "
       "checkpoints; `keel get --swa` writes it. In steps, epochs or a part of the run, such as 75%; 0: no mean.",
       "swa_epoch_start"},
      {"swa.every", member(+[](Config& c) -> Length& { return c.swa.every; }), "1", kNotBelowOne, kHasSwa,
       "Between two weights that join it, in steps, epochs or a part of the run."},
      {"swa.rate_factor",
       member(+[](Config& c) -> double& { return c.swa.rate_factor; }),
       "1",
       {.low = 0, .low_open = true},
       kHasSwa,
       "On the learning rates of the steps after swa.start.",
       "swa_lr"},
      {"swa.evaluate", member(+[](Config& c) -> bool& { return c.swa.evaluates; }), "false", kAny, kHasSwa,
       "Evaluations after swa.start are of the mean."},
  };
  // The first six say what is told and kept; averages, too, leave the trained weights alone, but for the rates.
  for (SchemaRow& row : rows)
    row.on_resume = row.key == "swa.rate_factor" || row.key == "swa.start" ? OnResume::warns : OnResume::ignores;
  return rows;
}

}  // namespace keel
