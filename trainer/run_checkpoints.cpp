#include "keel/trainer/run_checkpoints.h"

#include <filesystem>
#include <system_error>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/settle_checkpoint.h"

namespace keel {

RunCheckpoints::RunCheckpoints(const RunFolder& folder, const CheckpointConfig& config, Sharded& engine,
                               Communicator& ranks, TrainObserver& observer, RunCallbacks& callbacks,
                               const std::optional<Checkpoint>& begun, std::vector<SavedBeside> others)
    : folder_(folder),
      config_(config),
      engine_(engine),
      ranks_(ranks),
      observer_(observer),
      callbacks_(callbacks),
      others_(std::move(others)),
      begun_(begun),
      memory_(folder, config, engine, ranks, observer),
      newest_(begun ? begun->state.step : 0),
      last_(seconds_now()) {}

std::vector<SavedBeside> RunCheckpoints::beside() const {
  std::vector<SavedBeside> all = others_;
  for (SavedBeside& each : callbacks_.tensors()) all.push_back(std::move(each));
  return all;
}

void RunCheckpoints::begin() {
  if (config_.async) background_ = std::make_unique<AsyncSave>(engine_, ranks_, beside());
  memory_.begin();
}

bool RunCheckpoints::is_due(std::int64_t step, bool asked) const {
  return asked || is_due_again_ || config_.every.is_due(step);
}

bool RunCheckpoints::asks() const { return ranks_.rank() == 0 && config_.is_due_after(seconds_now() - last_); }

void RunCheckpoints::save(const TrainState& state) {
  last_ = seconds_now();
  if (!config_.async) return save_at_once(state);
  leave_lost(static_cast<std::size_t>(ranks_.size()));
  is_due_again_ = false;
  if (!background_) background_ = std::make_unique<AsyncSave>(engine_, ranks_, beside());
  if (background_->is_under_way() && config_.busy == CheckpointConfig::Busy::skip) {
    observer_.on_message(LogLevel::warning, concat("no checkpoint of step ", state.step, ": that of step ", saving_,
                                                   " is still being written (checkpoint.busy: skip)"));
    return;
  }
  finish();
  const std::string path = folder_.checkpoint(state.step);
  background_->begin(path, json_of(state), settling(state.step), beside());
  saving_ = state.step;
}

void RunCheckpoints::save_at_once(const TrainState& state) {
  const std::string path = folder_.checkpoint(state.step);
  saving_ = state.step;
  take(save_checkpoint(path, engine_, ranks_, json_of(state), settling(state.step), beside()));
}

void RunCheckpoints::try_to_save(const TrainState& state) {
  try {
    save(state);
  } catch (const Error& error) {
    // In the middle of a run a full disk is no reason to lose the training.
    if (error.kind() != ErrorKind::io || !is_thrown_by_all(ranks_)) throw;
    observer_.on_message(LogLevel::error, concat("no checkpoint of step ", state.step, ": ", error.what()));
  }
}

void RunCheckpoints::hear(std::span<const SaveNote> notes) {
  leave_lost(notes.size());
  if (!background_) return;
  if (const std::optional<SaveResult> result = background_->hear(notes)) ranks_.attempt([&] { take(*result); });
}

void RunCheckpoints::leave_lost(std::size_t ranks) {
  if (!background_ || background_->is_of(ranks)) return;
  if (background_->is_under_way()) {
    is_due_again_ = true;
    observer_.on_message(LogLevel::warning, concat("no checkpoint of step ", saving_,
                                                   ": ranks were lost that were writing it; another one is made"));
  }
  background_.reset();
}

void RunCheckpoints::finish() {
  leave_lost(static_cast<std::size_t>(ranks_.size()));
  if (background_ && background_->is_under_way()) take(background_->finish());
}

void RunCheckpoints::take(const SaveResult& result) {
  if (!result.failure.empty()) {
    observer_.on_message(LogLevel::error, concat("no checkpoint of step ", saving_, ": ", result.failure));
    return;
  }
  newest_ = made_ = saving_;
  together(ranks_, [&] {
    if (!result.warning.empty()) observer_.on_message(LogLevel::warning, result.warning);
    observer_.on_checkpoint({saving_, result.path});
  });
  callbacks_.tell_saved(result.path, saving_);
}

// Holds all that it uses: a thread that a hanging disk holds up may outlive the run.
std::function<void()> RunCheckpoints::settling(std::int64_t step) const {
  return [folder = folder_, config = config_, settled = settled_, step] {
    settle_checkpoint(folder, step, config);
    *settled = step;
  };
}

void RunCheckpoints::save_the_last(const TrainState& state) {
  finish();
  if (made_ != state.step) {
    std::error_code differs;
    const bool is_there = begun_ && begun_->state.step == state.step &&
                          std::filesystem::equivalent(begun_->path, folder_.checkpoint(state.step), differs);
    // As the first rank sees it: file systems may show others an older state.
    if (gather_values(ranks_, is_there ? 1 : 0).front() == 0) save_at_once(state);
  }
  // A session before may have ended between its last checkpoint and the weights beside it, or a disk refused them.
  together(ranks_, [&] {
    if (ranks_.rank() == 0 && *settled_ != state.step) settling(state.step)();
  });
  memory_.end();
}

void RunCheckpoints::forget() {
  newest_ = made_ = -1;
  *settled_ = -1;
  memory_.note();
}

void RunCheckpoints::save_somewhere(const TrainState& state, const std::function<void()>& prepare) {
  try {
    prepare();
    save_the_last(state);
  } catch (const Error&) {
    if (!is_thrown_by_all(ranks_) || newest_ == state.step) throw;
    const std::string path = save_elsewhere(state);
    if (path.empty()) throw;
    observer_.on_message(LogLevel::error, concat("what was learnt up to step ", state.step, " is in '", path,
                                                 "'; resume=", path, " run=OTHER goes on from there"));
  }
}

// The path of the checkpoint that one of the other places has taken; empty where none has.
std::string RunCheckpoints::save_elsewhere(const TrainState& state) const {
  const std::string name = concat("keel-", folder_.name(), "-step-", state.step);
  std::error_code here, temporary;
  for (const std::filesystem::path& place :
       {std::filesystem::current_path(here), std::filesystem::temp_directory_path(temporary)}) {
    const std::string path = broadcast_text(ranks_, place.empty() ? "" : (place / name).string());
    if (path.empty()) continue;
    try {
      save_checkpoint(path, engine_, ranks_, json_of(state), {}, beside());
      return path;
    } catch (const Error&) {
      if (!is_thrown_by_all(ranks_)) throw;
    }
  }
  return "";
}

}  // namespace keel
