#include "keel/trainer/loss_curves.h"

#include <cmath>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/compared_training.h"

namespace keel {
namespace {

// The bytes and seconds that steps have taken, without those of what lies between pause() and go_on().
class CostMeter {
 public:
  explicit CostMeter(ComparedTraining& training) : training_(training) { go_on(); }

  std::int64_t bytes() { return bytes_ + training_.sent() - sent_before_; }
  double seconds() const { return seconds_ + seconds_now() - began_; }
  void pause() {
    bytes_ = bytes();
    seconds_ = seconds();
  }
  void go_on() {
    sent_before_ = training_.sent();
    began_ = seconds_now();
  }

 private:
  ComparedTraining& training_;
  std::int64_t bytes_ = 0, sent_before_ = 0;
  double seconds_ = 0, began_ = 0;
};

bool evaluates_averages(const Config& config) {
  return (config.ema.decay > 0 && config.ema.evaluates) || (!config.swa.start.is_none() && config.swa.evaluates);
}

std::vector<LossPoint> trace_loss(ComparedTraining& training, std::int64_t steps) {
  training.begin();
  std::vector<LossPoint> points(static_cast<std::size_t>(steps));
  // On a device the loss comes a step later.
  const auto take = [&](const RunSteps::Turn& turn) {
    if (turn.outcome) points[static_cast<std::size_t>(turn.outcome->step - 1)].loss = turn.outcome->loss;
  };
  const Length& every = training.config().eval.every;
  CostMeter cost(training);
  for (LossPoint& point : points) {
    take(training.next());
    point.step = training.step();
    const bool evaluates = training.has_validation() && (point.step == steps || every.is_due(point.step));
    if (evaluates || point.step == steps) take(training.finish());
    point.bytes = cost.bytes();
    point.seconds = cost.seconds();
    if (!evaluates) continue;
    cost.pause();
    const std::optional<double> validation = training.evaluate().find(kValidationLoss);
    if (validation && std::isfinite(*validation)) point.validation_loss = validation;
    cost.go_on();
  }
  return points;
}

}  // namespace

std::vector<LossCurve> train_curves(std::span<const CurveWish> wishes, std::int64_t steps, const Network& network,
                                    TrainObserver& observer, Communicator& given) {
  together(given, [&] {
    KEEL_CHECK(steps >= 1, "a curve needs a step at least, not ", steps);
    for (const CurveWish& wish : wishes)
      KEEL_CHECK(
          !evaluates_averages(wish.config),
          "evaluations of this run are of an average of its weights, and a comparison has none; it evaluates the "
          "weights themselves by ema.evaluate=false or swa.evaluate=false");
  });
  if (wishes.empty()) return {};
  const ComparedRanks ranks(given, network, wishes.front().config);
  const LogSink log = [&](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  std::vector<LossCurve> curves;
  for (const CurveWish& wish : wishes) {
    ComparedTraining training(wish.config, concat("curve of steps: ", steps, "\n"), *ranks, log);
    curves.push_back({wish.variant, wish.seed, trace_loss(training, steps)});
    curves.back().skipped = training.skipped();
  }
  return curves;
}

}  // namespace keel
