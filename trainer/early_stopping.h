#pragma once
// Ends a run whose evaluations do not get better any more, and names its best checkpoint.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "keel/trainer/callback.h"
#include "keel/trainer/metric_rule.h"

namespace keel {

// Asks for the end when `patience` evaluations in a row, at least 1, were no better than the best one before. What was
// best, and how often it was missed since, is in checkpoints: a run that was ended goes on where patience has grown.
class EarlyStopping : public Callback {
 public:
  EarlyStopping(MetricRule rule, std::int64_t patience) : rule_(std::move(rule)), patience_(patience) {}
  std::string_view name() const override { return "early_stopping"; }
  void resumed(LoopView& view) override;
  void evaluation_end(LoopView& view, bool done) override;
  CallbackState save() override;
  void load(const Json& numbers) override;

 private:
  void stop_where_spent(LoopView& view) const;

  MetricRule rule_;
  std::int64_t patience_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0, missed_ = 0;
};

// Makes a checkpoint of each evaluation that is better than all before, and names it in checkpoints/best, which keeps
// it from being removed. An evaluation before the first step does not count.
class BestCheckpoint : public Callback {
 public:
  explicit BestCheckpoint(MetricRule rule) : rule_(std::move(rule)) {}
  std::string_view name() const override { return "best"; }
  void evaluation_end(LoopView& view, bool done) override;
  void checkpoint_saved(LoopView& view, const std::string& path, std::int64_t step) override;
  CallbackState save() override;
  void load(const Json& numbers) override;

 private:
  MetricRule rule_;
  std::optional<double> best_;
  std::int64_t best_step_ = -1;
};

}  // namespace keel
