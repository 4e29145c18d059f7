#pragma once
// Averages of the weights that training goes through, in fp32: each rank keeps those of the weights that it owns, so
// they are sharded as the optimizer's masters are.

#include <cstdint>
#include <string_view>

#include "keel/trainer/callback.h"
#include "keel/trainer/weight_average_options.h"

namespace keel {

// What both averages share: numbers like the weights, which begin as these are, are kept in checkpoints (section
// "callback.ema" or "callback.swa"), and take the weights' place in evaluations.
class WeightAverage : public Callback {
 public:
  explicit WeightAverage(bool evaluates) : evaluates_(evaluates) {}
  void fit_begin(LoopView& view) override;
  void evaluation_begin(LoopView& view) override;
  void evaluation_end(LoopView& view, bool done) override;
  CallbackState save() override { return {.numbers = {{"updates", updates_}}, .tensors = average_}; }
  void load(const Json& numbers) override { updates_ = numbers.at("updates").integer(); }

 protected:
  // average += (weight - average) * factor, in fp32: a number on the host, times one of the device where it is given.
  void move(LoopView& view, double factor, const Tensor& device_factor = {});
  std::int64_t updates() const { return updates_; }
  void count_update() { ++updates_; }
  virtual bool has_begun() const { return true; }

 private:
  TensorParts average_;
  TensorParts weights_;  // while the average is evaluated
  std::int64_t updates_ = 0;
  bool evaluates_;
};

// Exponential moving average: after every step that is taken, average += (1 - d) * (weight - average), with d = decay,
// or with warm-up d = min(decay, (1 + t) / (10 + t)) at its update t, counted from 0 (TensorFlow's
// ExponentialMovingAverage with num_updates). It begins as the weights, so it has no bias towards 0 to correct. A step
// that is skipped changes nothing but t.
class ExponentialAverage : public WeightAverage {
 public:
  explicit ExponentialAverage(const EmaOptions& options) : WeightAverage(options.evaluates), options_(options) {}
  std::string_view name() const override { return "ema"; }
  void after_optimizer_step(LoopView& view) override;

 private:
  EmaOptions options_;
};

// Stochastic weight averaging (Izmailov et al. 2018): the mean of the weights after step `start` and every `every`
// steps after it, average += (weight - average) / n for the n-th. From the step after `start` on learning rates are
// `rate_factor` times those of the schedule.
class StochasticAverage : public WeightAverage {
 public:
  // An Error where lengths in epochs or parts of a run have not been measured.
  explicit StochasticAverage(const SwaOptions& options)
      : WeightAverage(options.evaluates), options_(options), start_(options.start.last_step()) {
    (void)options.every.last_step();
  }
  std::string_view name() const override { return "swa"; }
  void step_begin(LoopView& view) override;
  void after_optimizer_step(LoopView& view) override;

 protected:
  bool has_begun() const override { return updates() > 0; }

 private:
  SwaOptions options_;
  std::int64_t start_;
};

}  // namespace keel
