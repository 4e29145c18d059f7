#include "keel/trainer/learning_rate.h"

#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Steps of the run in the schedule's own count.
std::int64_t total_of(const Config& config, std::int64_t steps) {
  const std::int64_t pace = config.scheduler.pace();
  return steps / pace + (steps % pace == 0 ? 0 : 1);
}

}  // namespace

ScheduleComplaints check_learning_rates(const Config& config) { return check_learning_rates(config, config.steps); }

ScheduleComplaints check_learning_rates(const Config& config, std::int64_t steps) {
  ScheduleComplaints complaints =
      check_schedule(config.scheduler.settings, config.optimizer.lr, total_of(config, steps));
  const OptimizerEntry& optimizer = find_optimizer(config.optimizer.type);
  if (complaints.empty() && LearningRate(config, steps).schedule().cycles_momentum() && !optimizer.has("momentum") &&
      !optimizer.has("betas"))
    complaints.push_back(
        {"cycle_momentum", concat(optimizer.name, " has neither momentum nor betas; set cycle_momentum to false")});
  if (complaints.empty() && optimizer.requirements.averages && LearningRate(config, steps).schedule().cycles_momentum())
    complaints.push_back(
        {"cycle_momentum", concat("the weights of ", optimizer.name,
                                  " follow from one beta1 of all steps; set cycle_momentum to false")});
  if (complaints.empty() && optimizer.requirements.one_vector &&
      LearningRate(config, steps).schedule().layer_factor(0, 1) != 1)
    complaints.push_back({"layer_decay", concat(optimizer.name, " treats all parameters as one vector; set it to 1")});
  return complaints;
}

LearningRate::LearningRate(const Config& config, std::int64_t steps)
    : base_rate_(config.optimizer.lr),
      pace_(config.scheduler.pace()),
      schedule_(config.scheduler.settings, config.optimizer.lr, total_of(config, steps)) {}

std::int64_t LearningRate::settles() const {
  const std::int64_t settles = schedule_.settles();
  return settles > RateSchedule::kNever / pace_ ? RateSchedule::kNever : settles * pace_;
}

}  // namespace keel
