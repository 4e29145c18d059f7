#include "keel/trainer/stack_config.h"

#include <algorithm>
#include <vector>

#include "keel/config/schema.h"
#include "keel/trainer/learning_rate.h"

namespace keel {
namespace {

constexpr std::string_view kSections[] = {"optimizer", "scheduler", "loss_scale"};

bool may_be_other(std::string_view change) {
  const std::string_view key = change.substr(0, change.find('='));
  return key == "clip" || key == "clip_by" || std::ranges::any_of(kSections, [&](std::string_view section) {
           return key == section || is_inside(key, section);
         });
}

}  // namespace

Config stack_config(const Config& config, const std::string& name, bool frozen) {
  if (frozen || name.empty()) return config;
  const std::string key = concat("stacks.", name);
  const std::vector<std::string>& changes = config.texts(key);
  if (changes.empty()) return config;
  for (const std::string& change : changes)
    KEEL_CHECK(may_be_other(change), key, ": '", change,
               "' is not of optimizer, scheduler, clip or loss_scale, which alone may be other than the run's");
  Config own = parse_config(config.keys, to_yaml(config), "the run's configuration", changes, key);
  // What the data has said of lengths since the configuration was read.
  own.steps = config.steps;
  own.epoch_steps = config.epoch_steps;
  own.strategy.precision = config.strategy.precision;
  if (config.epochs > 0 && config.epoch_steps > 0)
    for (const ScheduleComplaint& each : check_learning_rates(own))
      throw Error(concat(key, ": scheduler.", each.where, ": ", each.message, ", with ", own.steps, " steps in ",
                         config.epochs, " epochs"));
  return own;
}

}  // namespace keel
