#include "keel/trainer/run_stacks.h"

#include "keel/dist/comm/agreement.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/resume.h"

namespace keel {
namespace {

StackModels models_of(TaskBase& task, Communicator& ranks) {
  std::optional<StackModels> models;
  together(ranks, [&] { models.emplace(task); });
  return *std::move(models);
}

}  // namespace

RunStacks::RunStacks(const Site& site, const std::optional<Checkpoint>& resume)
    : site_(site), models_(models_of(site.task, site.ranks)) {
  Config& config = site.config;
  config.strategy.precision = decide_precision(config, site.context, models_.main(), resume, site.observer, site.ranks);
  check_memory(config, models_, site.ranks, site.context);
  device_ranks_.emplace(config, site.context, site.ranks);
  trace_.emplace(**device_ranks_, config);
  stacks_.emplace(
      StackSite{
          .config = config, .context = site.context, .ranks = trace_->ranks(), .micro_batches = site.micro_batches},
      models_, site.ranks);
  for (const auto& stack : stacks_->trained()) tell_once(LogLevel::warning, stack->warning());
  for (const std::string& note : site.task.notes()) tell_once(LogLevel::warning, note);
  for (const auto& stack : stacks_->trained()) tell_once(LogLevel::info, stack->note());
  for (const StackModel& model : models_.trained()) trace_->watch(*model.module);
}

void RunStacks::tell_once(LogLevel level, const std::string& words) {
  if (!words.empty() && site_.ranks.rank() == 0) site_.observer.on_message(level, words);
}

void RunStacks::load(const RunFolder& folder, const Data& data, std::optional<Checkpoint>& resume) {
  load_beginning(site_.config, folder, data, site_.observer, site_.ranks, engine(), resume);
  if (resume) check_fingerprints(*resume);
}

void RunStacks::check_fingerprints(const Checkpoint& resume) {
  const std::map<std::string, std::string>& before = resume.state.frozen;
  for (const StackModel& model : models_.frozen()) {
    const auto known = before.find(model.name);
    if (known == before.end())
      tell_once(LogLevel::warning,
                concat("goes on with the frozen model '", model.name, "', which '", resume.path, "' was made without"));
    else if (known->second != fingerprints().at(model.name))
      throw AgreedError(concat("the frozen model '", model.name, "' has other weights, in '", model.weights,
                               "', than when '", resume.path,
                               "' was made; give it those, or train anew with these (run=OTHER resume=never)"));
  }
  for (const auto& [name, identity] : before)
    if (!fingerprints().contains(name))
      tell_once(LogLevel::warning,
                concat("goes on without the frozen model '", name, "', which '", resume.path, "' was made with"));
}

}  // namespace keel
