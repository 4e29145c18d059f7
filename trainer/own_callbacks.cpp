#include "keel/trainer/own_callbacks.h"

#include "keel/trainer/config.h"
#include "keel/trainer/early_stopping.h"
#include "keel/trainer/weight_averages.h"

namespace keel {
namespace {

std::vector<MetricRule> rules_of(const std::vector<std::string>& texts, MetricMode mode, double min_delta) {
  std::vector<MetricRule> rules;
  for (const std::string& each : texts) rules.push_back(MetricRule::parse(each, mode, min_delta));
  return rules;
}

}  // namespace

Callbacks own_callbacks(const Config& config) {
  Callbacks all;
  if (config.ema.decay > 0) all.push_back(std::make_shared<ExponentialAverage>(config.ema));
  if (!config.swa.start.is_none()) all.push_back(std::make_shared<StochasticAverage>(config.swa));
  const CheckpointConfig& kept = config.checkpoint;
  if (!kept.best.empty()) all.push_back(std::make_shared<BestCheckpoint>(rules_of(kept.best, kept.best_mode, 0)));
  const EarlyStoppingConfig& stopping = config.early_stopping;
  if (stopping.stops()) {
    std::vector<std::int64_t> patience = stopping.patience;
    patience.resize(stopping.metrics.size(), patience.front());
    all.push_back(
        std::make_shared<EarlyStopping>(rules_of(stopping.metrics, stopping.mode, stopping.min_delta), patience));
  }
  return all;
}

}  // namespace keel
