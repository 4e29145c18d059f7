#include "keel/trainer/trainer.h"

#include <memory>
#include <utility>
#include <vector>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/trainer/batch_check.h"
#include "keel/trainer/data_fingerprint.h"
#include "keel/trainer/group_rates.h"
#include "keel/trainer/length.h"
#include "keel/trainer/lost_groups.h"
#include "keel/trainer/make_steps.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/own_callbacks.h"
#include "keel/trainer/rank_log.h"
#include "keel/trainer/run_beginning.h"
#include "keel/trainer/run_callbacks.h"
#include "keel/trainer/run_checkpoints.h"
#include "keel/trainer/run_evaluation.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/run_outcomes.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/run_report.h"
#include "keel/trainer/run_saves.h"
#include "keel/trainer/run_stacks.h"
#include "keel/trainer/run_time.h"
#include "keel/trainer/run_trackers.h"
#include "keel/trainer/shared_folder.h"
#include "keel/trainer/trial_run.h"

namespace keel {
namespace {

// Calls f, and agrees with the other ranks whether it worked: see together().
template <class F>
auto agreed(Communicator& ranks, const F& f) {
  std::optional<decltype(f())> result;
  together(ranks, [&] { result.emplace(f()); });
  return std::move(*result);
}

// Nobody is told by other ranks than the first.
std::function<void(std::uint64_t done, std::uint64_t all)> reading_of(TrainObserver& observer,
                                                                      const Communicator& ranks) {
  if (ranks.rank() != 0) return {};
  return [&observer](std::uint64_t done, std::uint64_t all) { observer.on_reading(done, all); };
}

// One run of one rank: what it is made of, and the loop.
class Run {
 public:
  Run(const Config& config, TrainObserver& observer, Communicator& ranks, const Callbacks& callbacks)
      : config_(config),
        survivors_(groups_that_may_be_lost(config, ranks)),
        ranks_(survivors_ ? survivors_->ranks() : ranks),
        trackers_(observer),
        observer_(trackers_),
        folder_(config.run),
        files_(folder_, observer_),
        context_(agreed(ranks_, [&] { return make_context(config, ranks_, log_of(observer_)); })),
        task_(agreed(ranks_, [&] { return make_task(config, context_.host(), {}, reading_of(observer, ranks_)); })),
        data_(agreed(ranks_, [&] { return open_training_data(config_, *task_); })),
        micro_batches_(agreed(ranks_, [&] { return planned_micro_batches(config, ranks.size()); })),
        resume_(find_beginning()) {
    check_agreement(ranks_, to_yaml(config), "ranks were given different configurations");
    check_same_data(config_, data_, ranks_, [&](const std::string& text) { tell_once(LogLevel::warning, text); });
    stacks_.emplace(RunStacks::Site{.config = config_,
                                    .context = context_,
                                    .task = *task_,
                                    .ranks = ranks_,
                                    .observer = observer_,
                                    .micro_batches = micro_batches_,
                                    .survivors = survivors_.get()},
                    resume_);
    tell_once(LogLevel::info, data_.note);
    stacks_->load(folder_, data_, resume_);
    if (resume_) state_ = resume_->state;
    if (resume_ && engine().has_strategy()) state_.optimizer = engine().state();  // of this group
    stacks_->trace().begin(state_.step);
    together(ranks_, [&] {
      Callbacks all = own_callbacks(config_);
      all.insert(all.end(), callbacks.begin(), callbacks.end());
      callbacks_.emplace(std::move(all),
                         RunCallbacks::Site{folder_.path(), state_.config, engine(), ranks_, observer_});
    });
    checkpoints_.emplace(folder_, config_.checkpoint, engine(), ranks_, observer_, *callbacks_, resume_,
                         stacks_->others());
    if (config.time_limit <= 0 || state_.time.seconds <= 0) state_.time = {0, state_.optimizer.steps};
    time_.emplace(config_, state_.time);
    state_.config = to_yaml(config_);
    state_.frozen = stacks_->fingerprints();
    state_.data = data_.training->fingerprint();
    state_.validation = fingerprints_of_sets(data_);
    report_.emplace(RunReport::Site{config_, std::string(task_->unit()), *stacks_, ranks_, observer_, files_, *time_,
                                    group_rates(stacks_->main().config(), stacks_->main().model())},
                    state_.step);
    beginning_.emplace(RunBeginning::Site{.config = config_,
                                          .data = data_,
                                          .folder = folder_,
                                          .ranks = ranks_,
                                          .rank = ranks.rank(),
                                          .observer = observer_,
                                          .files = files_,
                                          .trackers = trackers_,
                                          .report = *report_,
                                          .state = state_});
    outcomes_.emplace(RunOutcomes::Site{ranks_, observer_, *callbacks_, *report_, state_, *stacks_});
    saves_.emplace(RunSaves::Site{ranks_, observer_, files_, *callbacks_, *checkpoints_, *stacks_, state_});
    LoopState& loop = callbacks_->loop();
    loop.step = loop.known = state_.step;
    loop.steps = config_.steps;
    loop.units = state_.tokens;
    loop.rate_factor = state_.rate_factor;
    if (ranks_.size() == 1) tell_once(LogLevel::info, single_process_note(config.strategy));
  }

  TrainResult operator()() {
    // A schedule that cannot be tabulated is refused before anything is written.
    const StepCurves curves = time_->has_limit() ? StepCurves() : stacks_->main().curves();
    check_batches(data_, state_.step, config_.steps, ranks_);
    RunEvaluation{config_, *task_, data_, engine(), ranks_}.try_some();
    observer_.on_begin();
    beginning_->write(resume_ ? std::optional(state_.step) : std::nullopt);
    begin_callbacks();
    if (survivors_) files_.keep_records();
    if (survivors_)
      survivors_->when_lost([this](const LostGroup& lost) {
        ++result_.dropped_groups;
        beginning_->go_on_without(lost, callbacks_->loop().step);
      });
    checkpoints_->begin();
    steps_ = make_steps({.config = config_,
                         .task = *task_,
                         .stacks = *stacks_,
                         .ranks = ranks_,
                         .source = data_.training,
                         .micro_batches = micro_batches_,
                         .rate_factor = state_.rate_factor,
                         .watcher = callbacks_->empty() ? nullptr : &*callbacks_},
                        curves, state_.step);
    try {
      loop();
      callbacks_->tell_together("fit_end", &Callback::fit_end);
    } catch (...) {
      callbacks_->tell_exception();
      // Where the other ranks do not know of it they cannot save, either.
      if (is_thrown_by_all(ranks_) || outcomes_->failure_is_known()) saves_->save_after_failure(*steps_, *outcomes_);
      callbacks_->tell_end_after_failure();
      trackers_.end(RunStatus::failed);
      throw;
    }
    for (const auto& stack : stacks_->trained()) {
      const std::string& name = stack->name();
      trackers_.artifact(name.empty() ? "model" : concat("model.", name), folder_.model(name));
    }
    trackers_.end(result_.end == TrainEnd::stopped ? RunStatus::killed : RunStatus::finished);
    result_.step = state_.step;
    result_.loss = outcomes_->loss();
    result_.memory = context_.memory();
    result_.is_first = is_first();
    return result_;
  }

 private:
  bool is_first() const { return ranks_.rank() == 0; }
  Sharded& engine() { return stacks_->engine(); }

  // Evaluations are of averages where an optimizer's weights are such.
  void use_averages(bool use) {
    for (const auto& stack : stacks_->trained()) stack->engine().use_averages(use);
  }

  void tell_once(LogLevel level, const std::string& words) {
    if (!words.empty() && is_first()) observer_.on_message(level, words);
  }

  static LogSink log_of(TrainObserver& observer) {
    return [&observer](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  }

  std::optional<Checkpoint> find_beginning() {
    together(ranks_, [&] {
      if (is_first()) files_.take();
    });
    check_shared_folder(folder_.path(), ranks_);
    return find_resume(config_, folder_, data_, observer_, ranks_);
  }

  // Tells once, and agrees with the ranks that are left whether it worked.
  template <class F>
  void tell_together(const F& tell) {
    bool has_told = false;
    ranks_.attempt([&] {
      together(ranks_, [&] {
        if (!std::exchange(has_told, true)) tell();
      });
    });
  }

  void begin_callbacks() {
    callbacks_->tell_together("fit_begin", &Callback::fit_begin);
    if (!resume_) return;
    callbacks_->load(*resume_);
    callbacks_->tell_together("resumed", &Callback::resumed);
  }

  void loop() {
    report_->begin(outcomes_->waited_ms(*steps_));
    time_->begin();
    if (time_->is_spent()) end_by(TrainEnd::time_limit);
    take(callbacks_->agree());
    if (state_.owes_evaluation || (config_.eval.at_start && state_.step == 0 && !has_ended_)) {
      evaluate_now();
      if (std::exchange(state_.owes_evaluation, false)) ranks_.attempt([&] { saves_->save(); });
      report_->go_on(outcomes_->waited_ms(*steps_));
    }
    while (state_.step < config_.steps && !has_ended_) take_step();
    ranks_.attempt([&] { saves_->keep_folder(); });
    tell_once(LogLevel::warning, stacks_->trace().finish(state_.step, ranks_, folder_));
    tell_together([&] { result_.peak_resident_bytes = report_->tell_memory(state_.step); });
    if (result_.end != TrainEnd::stopped) outcomes_->check_some_step_was_taken();
    ranks_.attempt([&] { saves_->save_the_last(); });
  }

  void end_by(TrainEnd end) {
    has_ended_ = true;
    result_.end = end;
  }

  // A step, and what is due after it.
  void take_step() {
    const StepFlags agreed = run_step();
    take(agreed.wishes);
    if (agreed.late) end_by(TrainEnd::time_limit);
    if (agreed.stop) {
      end_by(TrainEnd::stopped);
      callbacks_->tell("interrupt", &Callback::interrupt);
    }
    const bool last = has_ended_ || agreed.failed || state_.step == config_.steps;
    const bool is_due =
        state_.step == config_.steps || config_.eval.every.is_due(state_.step) || agreed.wishes.evaluate;
    const bool evaluates = !agreed.stop && (last || is_due);
    state_.owes_evaluation = agreed.stop && is_due && !data_.validation.empty();
    bool saves = !last && checkpoints_->is_due(state_.step, agreed.save || agreed.wishes.save);
    const bool copies = !last && checkpoints_->is_copy_due(state_.step);
    if (last || evaluates || saves || copies) outcomes_->handle(steps_->finish(), *steps_);
    if (last) confirm();
    if (evaluates) saves |= evaluate_now().save;
    const bool ends = last || has_ended_;
    if (saves && !ends) ranks_.attempt([&] { saves_->save(); });
    if (copies && !ends) ranks_.attempt([&] { saves_->copy(); });
    if (ends_epoch(state_.step)) tell_epoch("epoch_end", &Callback::epoch_end);
    if (ends) return;
    if (evaluates || saves || copies) report_->go_on(outcomes_->waited_ms(*steps_));
  }

  void tell_epoch(std::string_view name, RunCallbacks::Event event) {
    if (config_.epoch_steps > 0) callbacks_->tell(name, event);
  }

  // A step and its outcome, or that of the step before; what all ranks have agreed on with it.
  StepFlags run_step() {
    const bool alone = ranks_.size() == 1;
    std::int64_t asked_after = outcomes_->taken();
    if (time_->has_limit())
      steps_->set_rates(make_curves(time_->rates_after(asked_after), asked_after, context_), state_.rate_factor);
    LoopState& loop = callbacks_->loop();
    loop.step = state_.step + 1;
    if (config_.epoch_steps > 0) loop.epoch = static_cast<double>(loop.step) / config_.epoch_steps;
    if (state_.step == 0 || ends_epoch(state_.step)) tell_epoch("epoch_begin", &Callback::epoch_begin);
    callbacks_->tell("step_begin", &Callback::step_begin);
    // At any number of ranks wishes are those from before the step; a rank alone hears signals at once.
    const LoopWishes wishes = callbacks_->wishes();
    RunSteps::Turn turn = steps_->next(alone ? StepFlags{.wishes = wishes} : flags());
    state_.step = steps_->step();
    tell_once(LogLevel::warning, stacks_->trace().finish_step(state_.step, ranks_, folder_));
    outcomes_->handle(turn, *steps_);
    if (const std::vector<Logged> tuned = stacks_->take_tuned(); !tuned.empty())
      tell_together([&] { report_->tell_values(state_.step, tuned); });
    callbacks_->tell("step_end", &Callback::step_end);
    if (alone) {
      turn.flags = flags();
      turn.flags.wishes = wishes;
      turn.saves = {turn.flags.saving};
      asked_after = outcomes_->taken();
    }
    if (!turn.saves.empty()) checkpoints_->hear(turn.saves);
    time_->hear(turn.flags.seconds, asked_after);
    state_.time = time_->spent();
    callbacks_->hear(turn.flags.wishes);
    return turn.flags;
  }

  // What callbacks of all ranks have asked for.
  void take(const LoopWishes& agreed) {
    if (agreed.rate != LoopWishes::kNone && agreed.rate != state_.rate_factor) {
      state_.rate_factor = agreed.rate;
      if (!time_->has_limit()) steps_->set_rates(stacks_->main().curves(), agreed.rate);
    }
    if (!agreed.stop || has_ended_) return;
    end_by(TrainEnd::callback);
    tell_once(LogLevel::info, concat("ends after step ", state_.step, ": ", callbacks_->stop_reason()));
  }

  // Whether an epoch ends with the step.
  bool ends_epoch(std::int64_t step) const {
    return epochs_passed(step, config_.epoch_steps) > epochs_passed(step - 1, config_.epoch_steps);
  }

  // Ends the run where some rank cannot go on, and has not told it yet.
  void confirm() {
    StepFlags told;
    told.failed = outcomes_->has_failed();
    outcomes_->handle(steps_->ask(told), *steps_);
  }

  StepFlags flags() {
    return {.stop = observer_.stop_requested(),
            .late = time_->is_over(),
            .failed = outcomes_->has_failed(),
            .save = observer_.save_requested() || checkpoints_->asks(),
            .saving = checkpoints_->note(),
            .seconds = time_->has_limit() ? time_->seconds() : 0,
            .wishes = callbacks_->wishes()};
  }

  // Returns what callbacks have asked for in its events.
  LoopWishes evaluate_now() {
    if (data_.validation.empty()) return {};
    const RunEvaluation evaluation{config_, *task_, data_, engine(), ranks_};
    try {
      use_averages(true);
      callbacks_->tell("evaluation_begin", &Callback::evaluation_begin);
      EvalReport report;
      ranks_.attempt([&] { report = evaluation.run(state_.step, config_.eval.batches); });
      stacks_->release_frozen();
      result_.evaluation = report;
      LoopState& loop = callbacks_->loop();
      loop.evaluated = state_.step;
      loop.metrics.clear();
      for (const NamedNumber& each : report.values) loop.metrics[each.name] = each.value;
      tell_together([&] { report_->tell_evaluation(report); });
    } catch (...) {
      if (is_thrown_by_all(ranks_)) {
        callbacks_->tell_evaluation_end(false);
        use_averages(false);
      }
      throw;
    }
    callbacks_->tell_evaluation_end(true);
    use_averages(false);
    const LoopWishes agreed = callbacks_->agree();
    if (agreed.failed) confirm();
    take(agreed);
    return agreed;
  }

  Config config_;                               // with the precision that was chosen
  std::unique_ptr<SurvivingGroups> survivors_;  // where groups go on when others are lost; goes last
  Communicator& ranks_;                         // that are left
  RunTrackers trackers_;                        // of the first rank
  RankLog observer_;
  RunFolder folder_;
  RunFiles files_;  // of the first rank
  Context context_;
  std::unique_ptr<TaskBase> task_;
  Data data_;
  std::int64_t micro_batches_;  // of a step, at most
  std::optional<Checkpoint> resume_;
  std::optional<RunStacks> stacks_;
  std::optional<RunCallbacks> callbacks_;
  std::optional<RunCheckpoints> checkpoints_;
  std::unique_ptr<RunSteps> steps_;
  std::optional<RunTime> time_;
  std::optional<RunReport> report_;
  std::optional<RunBeginning> beginning_;
  std::optional<RunOutcomes> outcomes_;
  std::optional<RunSaves> saves_;
  bool has_ended_ = false;
  TrainState state_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Config& config, TrainObserver& observer, Communicator& ranks, const Callbacks& callbacks) {
  const std::unique_ptr<Communicator> background = make_background(config, ranks);
  Communicator& all = background ? *background : ranks;
  const auto run = [&](const Config& each, const Callbacks& called) { return Run(each, observer, all, called)(); };
  return config.fast_dev_run > 0 ? try_out(config, observer, all, callbacks, run) : run(config, callbacks);
}

TrainResult train(const Config& config, TrainObserver& observer, const Callbacks& callbacks) {
  const std::unique_ptr<Communicator> alone = make_communicator(ThreadHub(1).connect(0));
  return train(config, observer, *alone, callbacks);
}

}  // namespace keel
