#include "keel/trainer/resume.h"

#include <algorithm>
#include <filesystem>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/learning_rate.h"

namespace keel {
namespace {

// A checkpoint of a run, whose configuration can be read and whose name is right.
Resume read_whole(const std::string& path) {
  Resume resume{path, read_checkpoint(path)};
  const std::optional<std::int64_t> named = RunFolder::step_named(path);
  KEEL_CHECK(!named || *named == resume.state.step, "'", path, "' holds step ", resume.state.step,
             ", not the step of its name; give it a name without a step, or its own again");
  parse_config(resume.state.config, path + "/state.json");
  return resume;
}

std::optional<Resume> newest_whole(const RunFolder& folder, TrainObserver& observer) {
  std::vector<std::int64_t> steps = folder.checkpoint_steps();
  if (steps.empty()) return std::nullopt;
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    const std::string path = folder.checkpoint(step);
    try {
      return read_whole(path);
    } catch (const Error& error) {
      observer.on_message(LogLevel::warning, concat("the checkpoint of step ", step, " is not usable: ", error.what()));
    }
  }
  throw Error(concat("no checkpoint in '", folder.path(), "' is whole; give the run another folder (run=OTHER)"));
}

// What a path means: a checkpoint, or the newest one in the folder of a run.
Resume read_named(const std::string& path, TrainObserver& observer) {
  std::error_code ignored;
  KEEL_CHECK(std::filesystem::exists(path, ignored), "resume: there is no '", path,
             "'; name a checkpoint, or the folder of a run, or say resume=auto");
  const RunFolder run(path);
  if (!std::filesystem::exists(run.config(), ignored)) return read_whole(path);
  std::optional<Resume> newest = newest_whole(run, observer);
  KEEL_CHECK(newest, "resume: the run in '", path, "' has no checkpoint yet");
  return *std::move(newest);
}

// The numbers of a model of another shape fit nowhere.
void check_same_model(const Resume& resume, const Config& config) {
  const ModelConfig before = parse_config(resume.state.config, resume.path + "/state.json").model;
  const ModelConfig& now = config.model;
  std::string differences;
  const auto compare = [&](const char* key, const auto& old_value, const auto& new_value) {
    if (old_value != new_value)
      differences += concat(differences.empty() ? "" : ", ", key, ' ', old_value, " instead of ", new_value);
  };
  compare("layers", before.layers, now.layers);
  compare("heads", before.heads, now.heads);
  compare("width", before.width, now.width);
  compare("block", before.block, now.block);
  compare("vocabulary", before.vocabulary, now.vocabulary);
  compare("bias", before.bias, now.bias);
  KEEL_CHECK(differences.empty(), "'", resume.path, "' is a checkpoint of another model: ", differences);
}

// What an optimizer keeps from step to step, by name.
std::string states_of(const Config& config) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config);
  std::string names;
  const auto add = [&](std::string_view name) { names += concat(names.empty() ? "" : ", ", name); };
  for (const std::string_view name : optimizer->state_names()) add(name);
  if (optimizer->one_by_one())  // a matrix has all kinds that there are
    for (const StateKind& kind : optimizer->parameter_state({2, 2}, {})) add(kind.name);
  return names.empty() ? "nothing" : names;
}

// The state of another optimizer says nothing to this one.
void check_same_states(const Resume& resume, const Config& config) {
  const Config before = parse_config(resume.state.config, resume.path + "/state.json");
  const std::string then = states_of(before), now = states_of(config);
  KEEL_CHECK(then == now, "'", resume.path, "' was trained by ", before.optimizer.type, ", which keeps ", then,
             ", and ", config.optimizer.type, " would go on from ", now,
             "; leave the optimizer as it was, or train anew with the other one (run=OTHER resume=never)");
}

// Says which settings are not those of the checkpoint's run; the new ones hold.
void note_changes(const Resume& resume, const Config& config, TrainObserver& observer) {
  const Config before = parse_config(resume.state.config, resume.path + "/state.json");
  std::string changed;
  const auto compare = [&](const char* key, const auto& old_value, const auto& new_value) {
    if (!(old_value == new_value)) changed += concat(changed.empty() ? "" : ", ", key);
  };
  compare("time_limit", before.time_limit, config.time_limit);
  compare("seed", before.seed, config.seed);
  compare("data", before.data, config.data);
  compare("batch", before.batch, config.batch);
  compare("optimizer", before.optimizer, config.optimizer);
  compare("scheduler", LearningRate(before).moves_like(LearningRate(config)), true);
  compare("clip", before.clip, config.clip);
  compare("model.dropout", before.model.dropout, config.model.dropout);
  Strategy strategy = config.strategy;
  if (strategy.precision == Strategy::Precision::automatic) strategy.precision = before.strategy.precision;
  compare("strategy", before.strategy, strategy);
  compare("sharding", before.sharding, config.sharding);
  compare("gradient_compression", before.gradient_compression, config.gradient_compression);
  compare("loss_scale", before.loss_scale, config.loss_scale);
  compare("kernels", before.kernels, config.kernels);
  if (!changed.empty())
    observer.on_message(LogLevel::warning, concat("goes on with other settings than before: ", changed));
}

// The same file may have become another text since.
void check_same_tokenizer(const RunFolder& folder, const Task& task) {
  if (!task.tokenizer || !std::filesystem::exists(folder.tokenizer())) return;
  KEEL_CHECK(load_tokenizer(folder.tokenizer())->to_json() == task.tokenizer->to_json(), "the run in '", folder.path(),
             "' was trained with another tokenizer than the data gives now; was the text changed?");
}

// Data that was asked for by another name may be other data.
void check_same_data(const Resume& resume, const Config& config, const Task& task, TrainObserver& observer) {
  if (resume.state.data.empty() || resume.state.data == task.fingerprint) return;
  const DataConfig before = parse_config(resume.state.config, resume.path + "/state.json").data;
  const DataConfig& now = config.data;
  if (before.type != now.type || before.path != now.path || before.tokenizer != now.tokenizer) return;
  const std::string change = concat("'", now.path, "' has changed since '", resume.path, "' was made: it had ",
                                    resume.state.data, ", and has ", task.fingerprint);
  if (!now.allow_changes) throw Error(concat(change, "; data.allow_changes=true goes on with it"));
  observer.on_message(LogLevel::warning, change);
}

// Why nothing is left to do, and what gives the run more; empty: something is.
std::string why_done(const TrainState& state, const Config& config) {
  if (state.step >= config.steps)
    return concat("it has ", state.step, " steps, and the run has ", config.steps, "; to go on, raise steps");
  if (config.time_limit > 0 && state.time.seconds >= config.time_limit)
    return concat("it has used ", compact_duration(state.time.seconds), " of training, and time_limit is ",
                  compact_duration(config.time_limit), "; to go on, raise time_limit");
  return "";
}

std::optional<Resume> look_for_resume(const Config& config, const RunFolder& folder, const Task& task,
                                      TrainObserver& observer) {
  if (config.resume == "never") {
    KEEL_CHECK(!folder.holds_run(), "'", folder.path(),
               "' holds a run already; resume=auto goes on with it, run=OTHER leaves it alone");
    return std::nullopt;
  }
  std::optional<Resume> resume;
  if (config.resume == "auto") {
    resume = newest_whole(folder, observer);
    if (!resume)
      observer.on_message(LogLevel::info, concat("'", folder.path(), "' holds no checkpoint: the run begins anew"));
  } else {
    resume = read_named(config.resume, observer);
    const std::vector<std::int64_t> steps = folder.checkpoint_steps();
    KEEL_CHECK(steps.empty() || steps.back() <= resume->state.step, "'", folder.path(),
               "' holds a newer checkpoint, of step ", steps.empty() ? 0 : steps.back(), ", than step ",
               resume->state.step, " to go on from; run=OTHER leaves it alone");
  }
  if (!resume) return std::nullopt;
  check_same_model(*resume, config);
  check_same_states(*resume, config);
  check_same_tokenizer(folder, task);
  check_same_data(*resume, config, task, observer);
  note_changes(*resume, config, observer);
  const std::string done = why_done(resume->state, config);
  observer.on_message(LogLevel::info, done.empty()
                                          ? concat("goes on after step ", resume->state.step, " from ", resume->path)
                                          : concat(resume->path, " is done: ", done));
  return resume;
}

}  // namespace

std::optional<Resume> find_resume(const Config& config, const RunFolder& folder, const Task& task,
                                  TrainObserver& observer, Communicator& ranks) {
  std::optional<Resume> resume;
  together(ranks, [&] {
    if (ranks.rank() == 0) resume = look_for_resume(config, folder, task, observer);
  });
  const std::string path = broadcast_text(ranks, resume ? resume->path : "");
  together(ranks, [&] {
    if (ranks.rank() != 0 && !path.empty()) resume = Resume{path, read_state(path)};
  });
  return resume;
}

}  // namespace keel
