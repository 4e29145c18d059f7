#include "keel/trainer/run_stacks.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/optim/catalog.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/resume.h"
#include "keel/trainer/stack_config.h"
#include "keel/trainer/weights_source.h"

namespace keel {
namespace {

// The configuration has a key for each model that has a name, and asks nothing of several models that is of one alone.
void check_models(const Config& config, TaskBase& task, const StackModels& models) {
  const bool steers = dynamic_cast<ManualTask*>(&task) != nullptr;
  if (!steers)
    KEEL_CHECK(models.trained().size() == 1 && models.trained().front().name.empty(), "the task ", config.task,
               " trains ", models.trained().size() == 1 ? "a model with a name" : "several models",
               "; one that steers its own steps (ManualTask) does, and this one has a single loss, which trains one ",
               "model without a name");
  for (const StackModel& model : models.trained())
    KEEL_CHECK(!steers || !model.name.empty(), "the task ", config.task,
               " steers its own steps and trains a model without a name; training_step() asks for models by name");
  std::string names, listed;
  for (const StackModel& model : models.trained())
    if (!model.name.empty()) names += concat(names.empty() ? "" : ", ", model.name);
  for (const std::string_view each : config.keys->tasks().find(config.task)->stacks)
    listed += concat(listed.empty() ? "" : ", ", each);
  KEEL_CHECK(names == listed, "the task ", config.task, " trains the models ",
             names.empty() ? "(one without a name)" : names, ", and its entry lists ", listed.empty() ? "none" : listed,
             "; both have the same names in the same order");
  if (!steers) return;
  const auto refuse = [&](bool asked, std::string_view key, std::string_view why) {
    if (asked)
      throw Error(concat(key, ": ", why, ", and the task ", config.task, " steers its own steps"),
                  ErrorKind::unsupported);
  };
  refuse(config.time_limit > 0, "time_limit", "schedules by the clock are for tasks with one loss");
  refuse(config.ema.decay > 0, "ema.decay", "averages of weights are for tasks with one model");
  refuse(!config.swa.start.is_none(), "swa.start", "averages of weights are for tasks with one model");
  refuse(config.gradient_compression.kind().feedback, "gradient_compression",
         "what is delivered later is kept for one model");
  refuse(config.text("outer.type") != "none", "outer.type", "outer steps are for tasks with one model");
  for (const StackModel& model : models.trained()) {
    const Config own = stack_config(config, model.name);
    KEEL_CHECK(model.passes >= 1, "model '", model.name, "' has ", model.passes, " passes; at least one is possible");
    refuse(find_optimizer(own.optimizer.type).requirements.closure, own.optimizer.type,
           "it evaluates the loss several times in a step");
  }
}

StackModels models_of(const Config& config, TaskBase& task, Communicator& ranks) {
  std::optional<StackModels> models;
  together(ranks, [&] {
    models.emplace(task);
    check_models(config, task, *models);
  });
  return *std::move(models);
}

}  // namespace

RunStacks::RunStacks(const Site& site, const std::optional<Checkpoint>& resume)
    : site_(site), models_(models_of(site.config, site.task, site.ranks)) {
  together(site.ranks, [&] {
    if (!resume && site.ranks.rank() == 0) check_shapes_of_weights(models_);
  });
  Config& config = site.config;
  config.strategy.precision = decide_precision(config, site.context, models_.main(), resume, site.observer, site.ranks);
  check_memory(config, models_, site.ranks, site.context);
  device_ranks_.emplace(config, site.context, site.ranks);
  trace_.emplace(**device_ranks_, config);
  stacks_.emplace(StackSite{.config = config,
                            .context = site.context,
                            .ranks = trace_->ranks(),
                            .micro_batches = site.micro_batches,
                            .survivors = site.survivors},
                  models_, site.ranks);
  for (const auto& stack : stacks_->trained()) tell_once(LogLevel::warning, stack->warning());
  for (const std::string& note : site.task.notes()) tell_once(LogLevel::warning, note);
  for (const auto& stack : stacks_->trained()) tell_once(LogLevel::info, stack->note());
  for (std::size_t i = 0; i < models_.trained().size(); ++i)
    trace_->watch(*models_.trained()[i].module, stacks_->trained()[i]->engine());
}

void RunStacks::tell_once(LogLevel level, const std::string& words) {
  if (!words.empty() && site_.ranks.rank() == 0) site_.observer.on_message(level, words);
}

std::vector<Logged> RunStacks::take_tuned() {
  if (has_told_tuned_) return {};
  std::vector<Logged> values;
  for (const auto& stack : trained()) {
    if (stack->engine().is_tuning()) return {};
    const std::string& name = stack->engine().options().name;
    for (const TunedAxis& axis : stack->engine().tuned()) {
      const std::string of = concat("tuned/", name, name.empty() ? "" : "/", axis.name);
      values.push_back({of, axis.values[axis.value]});
      values.push_back({of + "/tried", tried_text(axis)});
    }
  }
  has_told_tuned_ = true;
  for (const auto& stack : trained())
    if (const auto tuned = stack->engine().tuned(); !tuned.empty())
      tell_once(LogLevel::info, concat("sharding.bucket=auto has chosen, by milliseconds of a step: ", to_text(tuned)));
  return values;
}

void RunStacks::load(const RunFolder& folder, const Data& data, std::optional<Checkpoint>& resume) {
  std::vector<Sharded*> engines;
  for (const auto& stack : trained()) engines.push_back(&stack->engine());
  load_beginning(site_.config, folder, data, site_.observer, site_.ranks, engines, resume);
  if (resume) return check_fingerprints(*resume);
  stacks_->begin_with_weights(site_.ranks, [this](const std::string& note) { tell_once(LogLevel::info, note); });
}

bool RunStacks::forget_gradients() {
  bool are_finite = true;
  for (const auto& stack : trained()) {
    stack->engine().zero_grad();
    are_finite &= first_not_finite(stack->engine().weights()).empty();
  }
  const std::vector<int> all = gather_values(site_.ranks, are_finite ? 1 : 0);
  return std::ranges::count(all, 0) == 0;
}

void RunStacks::check_fingerprints(const Checkpoint& resume) {
  const std::map<std::string, std::string>& before = resume.state.frozen;
  for (const StackModel& model : models_.frozen()) {
    const auto known = before.find(model.name);
    if (known == before.end())
      tell_once(LogLevel::warning,
                concat("goes on with the frozen model '", model.name, "', which '", resume.path, "' was made without"));
    else if (known->second != fingerprints().at(model.name))
      throw AgreedError(concat(
          "the frozen model '", model.name, "' has other weights, in '", model.weights, "', than when '", resume.path,
          "' was made, or the same that were written otherwise (by another number of ranks); give it the ",
          "file or folder of then, or train anew with these (run=OTHER resume=never)"));
  }
  for (const auto& [name, identity] : before)
    if (!fingerprints().contains(name))
      tell_once(LogLevel::warning,
                concat("goes on without the frozen model '", name, "', which '", resume.path, "' was made with"));
}

}  // namespace keel
