#include "keel/trainer/own_callbacks.h"

#include "keel/trainer/config.h"
#include "keel/trainer/early_stopping.h"
#include "keel/trainer/weight_averages.h"

namespace keel {

Callbacks own_callbacks(const Config& config) {
  Callbacks all;
  if (config.ema.decay > 0) all.push_back(std::make_shared<ExponentialAverage>(config.ema));
  if (config.swa.start > 0) all.push_back(std::make_shared<StochasticAverage>(config.swa));
  if (config.checkpoint.best != "none")
    all.push_back(std::make_shared<BestCheckpoint>(MetricRule{config.checkpoint.best, config.checkpoint.best_mode}));
  const EarlyStoppingConfig& stopping = config.early_stopping;
  if (stopping.patience > 0)
    all.push_back(std::make_shared<EarlyStopping>(MetricRule{stopping.metric, stopping.mode, stopping.min_delta},
                                                  stopping.patience));
  return all;
}

}  // namespace keel
