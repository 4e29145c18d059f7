#pragma once
// Ends a run whose evaluations do not get better any more, and names its best checkpoints.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/callback.h"
#include "keel/trainer/metric_rule.h"

namespace keel {

// What a rule has found best so far.
class JudgedRule {
 public:
  explicit JudgedRule(MetricRule rule) : rule_(std::move(rule)) {}
  const MetricRule& rule() const { return rule_; }
  // Whether this evaluation is better than the best one before; `key` asked for the rule.
  bool judge(const LoopState& state, std::string_view key);
  std::int64_t best_step() const { return best_step_; }  // -1: none yet
  std::int64_t missed() const { return missed_; }        // evaluations since, in a row
  Json save() const;
  void load(const Json& numbers);

 private:
  MetricRule rule_;
  std::vector<std::optional<double>> best_;
  std::int64_t best_step_ = -1, missed_ = 0;
};

// Rules by their texts, as callbacks keep them: one that is new begins anew.
class JudgedRules {
 public:
  // A rule twice is an Error.
  explicit JudgedRules(std::vector<MetricRule> rules);
  std::vector<JudgedRule>& all() { return rules_; }
  const std::vector<JudgedRule>& all() const { return rules_; }
  Json save() const;
  void load(const Json& numbers);

 private:
  std::vector<JudgedRule> rules_;
};

// Asks for the end when of each rule its `patience` evaluations in a row, at least 1, were no better than the best one
// before. What was best, and how often it was missed since, is in checkpoints: a run that was ended goes on where
// patience has grown.
class EarlyStopping : public Callback {
 public:
  // One patience for each rule.
  EarlyStopping(std::vector<MetricRule> rules, std::vector<std::int64_t> patience);
  std::string_view name() const override { return "early_stopping"; }
  void resumed(LoopView& view) override;
  void evaluation_end(LoopView& view, bool done) override;
  CallbackState save() override { return {.numbers = rules_.save()}; }
  void load(const Json& numbers) override { rules_.load(numbers); }

 private:
  void stop_where_spent(LoopView& view) const;

  JudgedRules rules_;
  std::vector<std::int64_t> patience_;
};

// Makes a checkpoint of each evaluation that is better than all before by one of the rules, and names it in
// RunFolder::best(), which keeps it from being removed. An evaluation before the first step does not count.
class BestCheckpoint : public Callback {
 public:
  explicit BestCheckpoint(std::vector<MetricRule> rules) : rules_(std::move(rules)) {}
  std::string_view name() const override { return "best"; }
  void evaluation_end(LoopView& view, bool done) override;
  void checkpoint_saved(LoopView& view, const std::string& path, std::int64_t step) override;
  CallbackState save() override { return {.numbers = rules_.save()}; }
  void load(const Json& numbers) override { rules_.load(numbers); }

 private:
  JudgedRules rules_;
};

}  // namespace keel
