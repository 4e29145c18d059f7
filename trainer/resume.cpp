#include "keel/trainer/resume.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "keel/config/changes.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/data_fingerprint.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/run_memory.h"
#include "keel/trainer/shared_folder.h"
#include "keel/trainer/stack_config.h"

namespace keel {
namespace {

std::optional<Checkpoint> newest_of(const RunFolder& folder, const Config& config, TrainObserver& observer,
                                    std::int64_t below) {
  std::optional<Checkpoint> newest = newest_checkpoint(
      folder, [&](std::string_view complaint) { observer.on_message(LogLevel::warning, complaint); }, below,
      config.keys);
  KEEL_CHECK(newest || folder.checkpoint_steps().empty(), "no checkpoint in '", folder.path(),
             "' is whole; give the run another folder (run=OTHER)");
  return newest;
}

// What a path means: a checkpoint, or the newest one in the folder of a run.
Checkpoint open_path(const std::string& path, const Config& config, TrainObserver& observer, std::int64_t below) {
  std::error_code ignored;
  KEEL_CHECK(std::filesystem::exists(path, ignored), "resume: there is no '", path,
             "'; name a checkpoint, or the folder of a run, or say resume=auto");
  const std::string run = RunFolder::meant_by(path);
  if (run.empty()) return open_checkpoint_of_run(path, config.keys);
  std::optional<Checkpoint> newest = newest_of(RunFolder(run), config, observer, below);
  KEEL_CHECK(newest, "resume: the run in '", run, "' has no checkpoint yet");
  return *std::move(newest);
}

// The configuration of the run that wrote the checkpoint, with lengths in steps of the data that there is now.
Config config_of(const Checkpoint& resume, const Config& config) {
  Config before = parse_stored_config(config.keys, resume.state.config, resume.path);
  if (before.epochs > 0 && config.epoch_steps > 0) measure_lengths(before, config.epoch_steps, BatchSource::kEndless);
  return before;
}

// What an optimizer keeps from step to step, by name.
std::string states_of(const Config& config) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config);
  std::string names;
  std::set<std::string_view> seen;
  const auto add = [&](std::string_view name) {
    if (seen.insert(name).second) names += concat(names.empty() ? "" : ", ", name);
  };
  for (const std::string_view name : optimizer->state_names()) add(name);
  if (optimizer->requirements().one_by_one)  // matrices, hidden ones and others, have all kinds that there are
    for (const ParameterGroup& group : {ParameterGroup{}, ParameterGroup{.matrices = {2}}})
      for (const StateKind& kind : optimizer->parameter_state({2, 2}, group)) add(kind.name);
  return names.empty() ? "nothing" : names;
}

// The state of another optimizer says nothing to this one.
void check_same_states(const Checkpoint& resume, const Config& config) {
  const Config run_before = config_of(resume, config);
  for (const std::string& model : config.keys->tasks().find(config.task)->model_names()) {
    const Config before = stack_config(run_before, model), after = stack_config(config, model);
    const std::string then = states_of(before), now = states_of(after);
    KEEL_CHECK(then == now, model.empty() ? "" : concat("model '", model, "' of "), "'", resume.path,
               "' was trained by ", before.optimizer.type, ", which keeps ", then, ", and ", after.optimizer.type,
               " would go on from ", now,
               "; leave the optimizer as it was, or train anew with the other one (run=OTHER resume=never)");
  }
}

// "clip 0.5 instead of 1, seed 2 instead of 1".
std::string list_of(const std::vector<ConfigChange>& changes) {
  std::string text;
  for (const ConfigChange& each : changes)
    text += concat(text.empty() ? "" : ", ", each.key, ' ', each.now, " instead of ", each.before);
  return text;
}

// Says which settings are not those of the checkpoint's run; the new ones hold.
void note_changes(const Checkpoint& resume, const Config& config, TrainObserver& observer) {
  const Config before = config_of(resume, config);
  Config now = config;
  if (now.strategy.precision == Strategy::Precision::automatic) now.strategy.precision = before.strategy.precision;
  std::string changed = list_of(changes_between(config.schema(), before, now, OnResume::warns));
  if (!LearningRate(before).moves_like(LearningRate(now)))
    changed += concat(changed.empty() ? "" : ", ", "scheduler (",
                      list_of(changes_between(config.schema(), before, now, OnResume::paces)), ")");
  if (!changed.empty())
    observer.on_message(LogLevel::warning, concat("goes on with other settings than before: ", changed));
}

// Whether the configurations name one data set, in whatever order it is read.
bool name_same_data(const Config& before, const Config& now) {
  const std::vector<ConfigChange> changes = changes_between(now.schema(), before, now, OnResume::warns);
  return std::none_of(changes.begin(), changes.end(), [](const ConfigChange& change) {
    return is_inside(change.key, "data") && change.key != "data.seed";
  });
}

// Data that was asked for by another name may be other data.
void check_same_data(const Checkpoint& resume, const Config& config, const Data& data, TrainObserver& observer) {
  if (!name_same_data(config_of(resume, config), config)) return;
  const auto differs = [&](const std::string& name, const std::string& before, const std::string& now) {
    if (before.empty() || before == now) return false;
    const std::string change =
        concat(name, " has changed since '", resume.path, "' was made: it had ", before, ", and has ", now);
    if (!config.data.allow_changes) throw Error(concat(change, "; data.allow_changes=true goes on with it"));
    observer.on_message(LogLevel::warning, change);
    return true;
  };
  const bool is_other = differs(name_of_data(config), resume.state.data, data.training->fingerprint());
  for (const ValidationSet& set : data.validation) {
    const auto before = resume.state.validation.find(set.name);
    if (before == resume.state.validation.end() || (set.path.empty() && is_other)) continue;
    differs(concat(name_of_set(config, set), ','), before->second, set.source->fingerprint());
  }
}

// Why nothing is left to do, and what gives the run more; empty: something is.
std::string why_done(const TrainState& state, const Config& config) {
  if (state.owes_evaluation) return "";
  if (state.step >= config.steps)
    return concat("it has ", state.step, " steps, and the run has ", config.steps, "; to go on, raise ",
                  config.epochs > 0 ? "epochs" : "steps");
  if (config.time_limit > 0 && state.time.seconds >= config.time_limit)
    return concat("it has used ", compact_duration(state.time.seconds), " of training, and time_limit is ",
                  compact_duration(config.time_limit), "; to go on, raise time_limit");
  return "";
}

std::optional<Checkpoint> look_for_resume(const Config& config, const RunFolder& folder, const Data& data,
                                          TrainObserver& observer, std::int64_t below,
                                          const std::optional<Promotion>& promoted) {
  if (config.resume == "never") {
    KEEL_CHECK(!folder.holds_run(), "'", folder.path(),
               "' holds a run already; resume=auto goes on with it, run=OTHER leaves it alone");
    return std::nullopt;
  }
  std::optional<Checkpoint> resume;
  if (config.resume == "auto") {
    resume = newest_of(folder, config, observer, promoted ? promoted->step + 1 : below);
    if (!resume)
      observer.on_message(LogLevel::info, concat("'", folder.path(), "' holds no checkpoint: the run begins anew"));
  } else {
    resume = open_path(config.resume, config, observer, below);
    const std::vector<std::int64_t> steps = folder.checkpoint_steps();
    KEEL_CHECK(steps.empty() || steps.back() <= resume->state.step || steps.back() >= below, "'", folder.path(),
               "' holds a newer checkpoint, of step ", steps.empty() ? 0 : steps.back(), ", than step ",
               resume->state.step, " to go on from; run=OTHER leaves it alone");
  }
  if (!resume) return std::nullopt;
  check_has_configuration(*resume);
  check_is_known(*config.keys, resume->state.config, resume->path);
  if (promoted) resume->hosts = promoted->hosts;
  check_same_model(*resume, config);
  check_same_states(*resume, config);
  const std::string around = RunFolder::around(resume->path);
  check_same_files(around.empty() ? folder : RunFolder(around), data);
  check_same_data(*resume, config, data, observer);
  note_changes(*resume, config, observer);
  const std::string done = why_done(resume->state, config);
  observer.on_message(LogLevel::info,
                      done.empty() ? concat("goes on after step ", resume->state.step, " from ", resume->path,
                                            resume->hosts.empty() ? "" : ", which was in the memory of ", resume->hosts)
                                   : concat(resume->path, " is done: ", done));
  return resume;
}

}  // namespace

void check_same_model(const Checkpoint& resume, const Config& config) {
  const Config before = config_of(resume, config);
  KEEL_CHECK(before.task == config.task, "'", resume.path, "' is a checkpoint of the task ", before.task, ", not of ",
             config.task);
  std::string differences;
  for (const ConfigChange& each : changes_between(config.schema(), before, config, OnResume::refuses))
    differences += concat(differences.empty() ? "" : ", ", each.key.substr(each.key.rfind('.') + 1), ' ', each.before,
                          " instead of ", each.now);
  KEEL_CHECK(differences.empty(), "'", resume.path, "' is a checkpoint of another model: ", differences);
}

void check_same_files(const RunFolder& folder, const Data& data) {
  for (const auto& [name, text] : data.files) {
    const std::string path = folder.file(name);
    if (!std::filesystem::exists(path) || read_text_file(path) == text) continue;
    throw Error(concat("the run in '", folder.path(), "' was trained with ", text.empty() ? "a " : "another ", name,
                       text.empty() ? ", and the data gives none now" : " than the data gives now",
                       "; was the data changed?"));
  }
}

std::optional<Checkpoint> find_resume(const Config& config, const RunFolder& folder, const Data& data,
                                      TrainObserver& observer, Communicator& ranks, std::int64_t below,
                                      std::int64_t copies_below) {
  std::optional<Promotion> promoted;
  if (config.resume == "auto")
    promoted = promote_newest_copy(folder, config.keys, observer, ranks, below, copies_below);
  std::optional<Checkpoint> resume;
  together(ranks, [&] {
    if (ranks.rank() == 0) resume = look_for_resume(config, folder, data, observer, below, promoted);
  });
  Checkpoint found = broadcast_checkpoint(resume.value_or(Checkpoint()), ranks);
  if (promoted) found.hosts = promoted->hosts;
  if (found.path.empty()) return std::nullopt;
  check_readable_by_all(found.path, ranks);
  return found;
}

void load_beginning(const Config& config, const RunFolder& folder, const Data& data, TrainObserver& observer,
                    Communicator& ranks, std::span<Sharded* const> engines, std::optional<Checkpoint>& resume) {
  while (resume) {
    try {
      for (Sharded* const engine : engines) load_checkpoint(resume->path, resume->manifest, *engine, ranks);
      return;
    } catch (const Error& error) {
      const bool may_have_others = config.resume == "auto" || !RunFolder::meant_by(config.resume).empty();
      if (!is_thrown_by_all(ranks) || !may_have_others) throw;
      if (ranks.rank() == 0)
        observer.on_message(LogLevel::warning,
                            concat("the checkpoint of step ", resume->state.step, " is not usable: ", error.what()));
    }
    // A copy of the same step may be whole.
    const std::int64_t step = resume->state.step;
    resume = find_resume(config, folder, data, observer, ranks, step, resume->hosts.empty() ? step + 1 : step);
  }
}

}  // namespace keel
