#include "keel/trainer/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <utility>

#include "keel/data/divide_rows.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/kernels/update.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/data_fingerprint.h"
#include "keel/trainer/evaluation.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/rank_log.h"
#include "keel/trainer/run_checkpoints.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/run_time.h"
#include "keel/trainer/run_trace.h"
#include "keel/trainer/run_trackers.h"
#include "keel/trainer/shared_folder.h"
#include "keel/trainer/skipped_steps.h"
#include "keel/trainer/stack.h"
#include "keel/trainer/step_clock.h"
#include "keel/trainer/training_step.h"

namespace keel {
namespace {

// Chosen once, when the run begins: a probe may come out differently the next time, and on another rank.
Strategy::Precision decide_precision(const Config& config, const Context& context, Module& model,
                                     const std::optional<Checkpoint>& resume, TrainObserver& observer,
                                     Communicator& ranks) {
  Strategy::Precision precision = config.strategy.precision;
  if (precision == Strategy::Precision::automatic && resume)
    precision = parse_config(config.keys, resume->state.config, resume->path).strategy.precision;
  if (precision != Strategy::Precision::automatic) return precision;
  const PrecisionChoice choice = choose_precision(context, inner_extent(model));
  if (ranks.rank() == 0) observer.on_message(LogLevel::info, choice.reason);
  return gather_values(ranks, choice.precision).front();
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Calls f, and agrees with the other ranks whether it worked: see together().
template <class F>
auto agreed(Communicator& ranks, const F& f) {
  std::optional<decltype(f())> result;
  together(ranks, [&] { result.emplace(f()); });
  return std::move(*result);
}

// One run of one rank: what it is made of, and the loop.
class Run {
 public:
  Run(const Config& config, TrainObserver& observer, Communicator& ranks)
      : config_(config),
        ranks_(ranks),
        trackers_(observer),
        observer_(trackers_),
        folder_(config.run),
        files_(folder_, observer_),
        context_(agreed(ranks, [&] { return make_context(config, ranks, log_of(observer_)); })),
        task_(agreed(ranks, [&] { return make_task(config, context_.host()); })),
        data_(agreed(ranks, [&] { return open_training_data(config, *task_); })),
        micro_batches_(agreed(
            ranks, [&] { return divide_rows(config.batch.global, config.batch.micro, ranks.rank(), ranks.size()); })),
        model_(*agreed(ranks, [&] { return &task_->model(); })),
        resume_(find_beginning(config)) {
    check_agreement(ranks, to_yaml(config), "ranks were given different configurations");
    check_same_data();
    config_.strategy.precision = decide_precision(config, context_, model_, resume_, observer_, ranks);
    check_memory(config_, model_, ranks, context_);
    device_ranks_.emplace(config_, context_, ranks);
    trace_.emplace(**device_ranks_, config.log.trace);
    stack_.emplace(StackSite{.config = config_,
                             .context = context_,
                             .ranks = trace_->ranks(),
                             .micro_batches = static_cast<std::int64_t>(micro_batches_.size())},
                   model_);
    tell_once(LogLevel::warning, stack_->warning());
    for (const std::string& note : task_->notes()) tell_once(LogLevel::warning, note);
    tell_once(LogLevel::info, stack_->note());
    tell_once(LogLevel::info, data_.note);
    trace_->watch(model_);
    load_beginning(config_, folder_, data_, observer_, ranks_, engine(), resume_);
    if (resume_) state_ = resume_->state;
    trace_->begin(state_.step + 1);
    checkpoints_.emplace(folder_, config_.checkpoint, engine(), ranks_, observer_, resume_);
    if (config.time_limit <= 0 || state_.time.seconds <= 0) state_.time = {0, state_.optimizer.steps};
    time_.emplace(config_, state_.time);
    skipped_.emplace(engine().options().scaling, state_.optimizer.steps);
    state_.config = to_yaml(config_);
    state_.data = data_.training->fingerprint();
    measured_step_ = known_step_ = state_.step;
    if (ranks.size() == 1) tell_once(LogLevel::info, single_process_note(config.strategy));
  }

  TrainResult operator()() {
    // A schedule that cannot be tabulated is refused before anything is written.
    const StepCurves curves = time_->has_limit() ? StepCurves() : stack_->curves();
    write_description();
    const auto loss = [this](const Batch& batch, Forward& pass) { return task_->training_step(batch, pass); };
    steps_.emplace(TrainingSteps::Parts{.model = model_,
                                        .loss = loss,
                                        .engine = engine(),
                                        .ranks = ranks_,
                                        .loader = data_.training,
                                        .micro_batches = micro_batches_,
                                        .curves = curves,
                                        .last_step = config_.steps,
                                        .seed = config_.seed,
                                        .cuda_graph = config_.cuda_graph,
                                        .unit = std::string(task_->unit())},
                   state_.step);
    try {
      loop();
    } catch (...) {
      // Where the other ranks do not know of it they cannot save, either.
      if (is_thrown_by_all(ranks_) || failure_is_known_) save_after_failure();
      trackers_.end(RunStatus::failed);
      throw;
    }
    trackers_.artifact("model", folder_.model());
    trackers_.end(result_.end == TrainEnd::stopped ? RunStatus::killed : RunStatus::finished);
    result_.step = state_.step;
    result_.memory = context_.memory();
    return result_;
  }

 private:
  bool is_first() const { return ranks_.rank() == 0; }
  Sharded& engine() { return stack_->engine(); }

  void tell_once(LogLevel level, const std::string& words) {
    if (!words.empty() && is_first()) observer_.on_message(level, words);
  }

  static LogSink log_of(TrainObserver& observer) {
    return [&observer](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  }

  std::optional<Checkpoint> find_beginning(const Config& config) {
    together(ranks_, [&] {
      if (is_first()) files_.take();
    });
    check_shared_folder(folder_.path(), ranks_);
    return find_resume(config, folder_, data_, observer_, ranks_);
  }

  void check_same_data() {
    const std::string differences = compare_fingerprints(ranks_, data_.training->fingerprint());
    if (differences.empty()) return;
    const std::string text = concat("ranks find different data at ", name_of_data(config_), ": ", differences);
    if (!config_.data.allow_changes)
      throw AgreedError(text + "; give all the same file, or train on with data.allow_changes=true");
    if (is_first()) observer_.on_message(LogLevel::warning, text);
  }

  void write_description() {
    together(ranks_, [&] {
      if (!is_first()) return;
      files_.begin(to_yaml(config_), data_.files, resume_ ? std::optional(state_.step) : std::nullopt);
    });
    together(ranks_, [&] {
      observer_.open(folder_.log(ranks_.rank()));
      if (is_first())
        trackers_.begin(config_, ranks_.size(), resume_ ? std::optional(state_.step) : std::nullopt, observer_);
    });
    checkpoints_->begin();
  }

  // Makes the folder again where somebody has removed it.
  void keep_folder() {
    bool was_made_again = false;
    together(ranks_, [&] {
      if (files_.has_begun()) was_made_again = files_.keep(state_.step);
    });
    if (gather_values(ranks_, was_made_again ? 1 : 0).front() == 1) checkpoints_->forget();
  }

  void loop() {
    began_ = seconds_now();
    clock_.begin(began_, steps_->waited_ms());
    time_->begin();
    const bool is_spent = time_->is_spent(), alone = ranks_.size() == 1;
    result_.end = is_spent ? TrainEnd::time_limit : TrainEnd::finished;
    while (state_.step < config_.steps && !is_spent) {
      std::int64_t asked_after = steps_taken();
      if (time_->has_limit()) steps_->set_curves(make_curves(time_->rates_after(asked_after), asked_after, context_));
      TrainingSteps::Turn turn = steps_->next(alone ? StepFlags{} : flags());
      state_.step = steps_->step();
      trace_->finish_step(state_.step, ranks_, folder_.trace());
      handle(turn);
      if (alone) {
        turn.flags = flags();
        turn.saves = {turn.flags.saving};
        asked_after = steps_taken();
      }
      if (!turn.saves.empty()) checkpoints_->hear(turn.saves);
      time_->hear(turn.flags.seconds, asked_after);
      state_.time = time_->spent();
      const bool stopped = turn.flags.stop, late = turn.flags.late;
      if (stopped || late) result_.end = stopped ? TrainEnd::stopped : TrainEnd::time_limit;
      const bool last = stopped || late || turn.flags.failed || state_.step == config_.steps;
      const bool evaluates = !stopped && (last || is_due(config_.eval.every));
      const bool saves = !last && checkpoints_->is_due(state_.step, turn.flags.save);
      const bool copies = !last && checkpoints_->is_copy_due(state_.step);
      if (last || evaluates || saves || copies) handle(steps_->finish());
      if (last) {
        StepFlags told;
        told.failed = failure_ != nullptr;
        handle(steps_->ask(told));
      }
      if (evaluates) evaluate_now();
      if (last) break;
      if (saves) save();
      if (copies) checkpoints_->copy(state_);
      if (evaluates || saves || copies) clock_.begin(seconds_now(), steps_->waited_ms());
    }
    keep_folder();
    write_memory();
    if (result_.end != TrainEnd::stopped) skipped_->check_some_step_was_taken();
    checkpoints_->save_the_last(state_);
  }

  bool is_due(std::int64_t every) const { return is_due(every, state_.step); }
  static bool is_due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

  StepFlags flags() {
    return {.stop = observer_.stop_requested(),
            .late = time_->is_over(),
            .failed = failure_ != nullptr,
            .save = observer_.save_requested() || checkpoints_->asks(),
            .saving = checkpoints_->note(),
            .seconds = time_->has_limit() ? time_->seconds() : 0};
  }

  // Those whose outcome is not known yet count as taken.
  std::int64_t steps_taken() const { return state_.optimizer.steps + state_.step - known_step_; }

  // Reports what has come out. A rank whose report fails (a full disk, an observer that throws) tells the others with
  // the next step, so that all can save.
  void handle(const TrainingSteps::Turn& turn) {
    if (turn.flags.failed) {
      failure_is_known_ = true;
      const std::string missing = broadcast_text(ranks_, steps_->data_failure(), turn.failed_rank);
      if (!missing.empty()) throw AgreedError(concat("rank ", turn.failed_rank, ": ", missing), ErrorKind::io);
      if (failure_) std::rethrow_exception(failure_);
      throw AgreedError(concat("rank ", turn.failed_rank, " cannot go on; its log says why"), ErrorKind::peer);
    }
    if (!turn.outcome) return;
    try {
      report(*turn.outcome);
    } catch (...) {
      if (ranks_.size() == 1) throw;
      failure_ = std::current_exception();
    }
    skipped_->count(turn.outcome->result, turn.outcome->step);
    state_.optimizer.steps = turn.outcome->result.steps_taken;
    known_step_ = turn.outcome->step;
  }

  void report(const StepOutcome& outcome) {
    const double now = seconds_now();
    clock_.end_step(now, steps_->waited_ms());
    state_.tokens += outcome.units;
    result_.loss = outcome.loss;
    if (!outcome.result.taken)
      observer_.on_message(skipped_->are_expected() ? LogLevel::info : LogLevel::warning,
                           skipped_->message(outcome.result, outcome.step));
    StepReport report;
    report.step = outcome.step;
    report.steps = config_.steps;
    report.loss = outcome.loss;
    report.unit = task_->unit();
    report.units_per_s = static_cast<double>(outcome.units) / clock_.mean_seconds();
    report.lr = outcome.result.lr;
    report.grad_norm = outcome.result.grad_norm;
    double left = clock_.mean_seconds() * static_cast<double>(config_.steps - outcome.step);
    report.time_limit = config_.time_limit;
    report.seconds = time_->seconds();
    if (time_->has_limit()) left = std::min(left, std::max(0.0, report.time_limit - report.seconds));
    report.seconds_left = left;
    if (files_.has_begun() && (is_due(config_.log.every, outcome.step) || outcome.step == config_.steps)) {
      const StepClock::Interval times = clock_.take_interval();
      const std::string speed = report.unit + "_per_s";
      std::vector<Logged> metrics = {{"loss", outcome.loss},          {"lr", report.lr},
                                     {"grad_norm", report.grad_norm}, {speed, report.units_per_s},
                                     {"step_ms", times.step_ms},      {"elapsed_s", now - began_},
                                     {report.unit, state_.tokens}};
      if (engine().optimizer().requirements().closure) metrics.push_back({"evaluations", outcome.result.evaluations});
      if (engine().options().loss_scale != 1) metrics.push_back({"loss_scale", outcome.result.loss_scale});
      if (ranks_.size() > 1) {
        const std::int64_t sent = engine().data_traffic().sent(), steps = outcome.step - measured_step_;
        metrics.push_back({"exposed_ms", times.exposed_ms});
        metrics.push_back({"sent_bytes", (sent - measured_bytes_) / steps});
        measured_bytes_ = sent;
        measured_step_ = outcome.step;
      }
      files_.write(outcome.step, metrics);
    }
    observer_.on_step(report);
  }

  void evaluate_now() {
    if (data_.validation.empty()) return;
    const double start = seconds_now();
    EvalReport report{.step = state_.step};
    for (const ValidationSet& set : data_.validation) evaluate_on(set, report);
    report.seconds = seconds_now() - start;
    result_.evaluation = report;
    std::vector<Logged> record;
    for (const NamedNumber& each : report.values) record.push_back({each.name, each.value});
    together(ranks_, [&] {
      if (files_.has_begun()) files_.write(state_.step, record);
      observer_.on_eval(report);
    });
  }

  void evaluate_on(const ValidationSet& set, EvalReport& report) {
    Metrics metrics;
    metrics.make<MeanMetric>("loss");
    task_->make_metrics(set.name, metrics);
    const std::int64_t all = set.source->steps();
    const auto validate = [this](const Batch& batch, Forward& pass, Metrics& fed) {
      task_->validation_step(batch, pass, fed);
    };
    evaluate(*set.source, config_.eval.batches == 0 ? all : std::min(config_.eval.batches, all), context_,
             engine().options().policy.parameter, validate, metrics, ranks_);
    const std::string prefix = set.name.empty() ? "" : set.name + '/';
    for (const auto& [name, metric] : metrics.all())
      for (const NamedNumber& each : metric->result()) {
        std::string full = concat(prefix, name, each.name.empty() ? "" : "_", each.name);
        if (full == "loss") full = kValidationLoss;
        report.values.push_back({std::move(full), each.value});
      }
  }

  void write_memory() {
    const MemoryReport memory = context_.memory(), host = context_.host().memory();
    std::array<std::string, kPurposeCount> names;
    std::vector<Logged> metrics;
    for (std::size_t i = 0; i < names.size(); ++i) {
      names[i] = concat("peak_", name_of(static_cast<Purpose>(i)), "_bytes");
      const MemoryReport& where = static_cast<Purpose>(i) == Purpose::checkpoint ? host : memory;
      metrics.push_back({names[i], static_cast<std::int64_t>(where.by_purpose[i].peak)});
    }
    metrics.push_back({"peak_total_bytes", static_cast<std::int64_t>(memory.total.peak)});
    result_.peak_resident_bytes = peak_resident_bytes();
    metrics.push_back({"peak_resident_bytes", result_.peak_resident_bytes});
    together(ranks_, [&] {
      if (files_.has_begun()) files_.write(state_.step, metrics);
    });
  }

  void save() {
    keep_folder();
    checkpoints_->try_to_save(state_);
  }

  void save_after_failure() noexcept {
    try {
      if (const TrainingSteps::Turn turn = steps_->finish(); turn.outcome) report(*turn.outcome);
    } catch (const std::exception&) {}  // the error that ended the run is the one to report
    try {
      state_.step = steps_->step();
      engine().zero_grad();
      int bad = 0;  // weights
      for (const TensorPart& part : engine().weights())
        if (part.numel() > 0 && !kernels::all_finite(part.values)) ++bad;
      for (const int each : gather_values(ranks_, bad))
        if (each > 0) {  // the checkpoint before is worth more
          checkpoints_->finish();
          return checkpoints_->drop_copies();
        }
      checkpoints_->finish();
      if (checkpoints_->newest() >= state_.step) return checkpoints_->drop_copies();
      checkpoints_->save_somewhere(state_, [this] { keep_folder(); });
    } catch (const std::exception& error) {
      if (!is_thrown_by_all(ranks_)) ranks_.fail(concat("rank ", ranks_.rank(), " could not save: ", error.what()));
      try {
        observer_.on_message(LogLevel::error, concat("step ", state_.step, " could not be saved: ", error.what()));
      } catch (...) { return; }  // the error that ended the run is the one to report
    }
  }

  Config config_;  // with the precision that was chosen
  Communicator& ranks_;
  RunTrackers trackers_;  // of the first rank
  RankLog observer_;
  RunFolder folder_;
  RunFiles files_;  // of the first rank
  Context context_;
  std::unique_ptr<Task> task_;
  Data data_;
  std::vector<Rows> micro_batches_;  // of this rank
  Module& model_;                    // the task's
  std::optional<Checkpoint> resume_;
  std::optional<DeviceCommunicator> device_ranks_;
  std::optional<RunTrace> trace_;
  std::optional<Stack> stack_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<TrainingSteps> steps_;
  std::exception_ptr failure_;     // of a report
  bool failure_is_known_ = false;  // to all ranks
  std::optional<RunTime> time_;
  double began_ = 0;  // seconds
  StepClock clock_;
  std::int64_t measured_bytes_ = 0, measured_step_ = 0;
  TrainState state_;             // `optimizer` counts the steps taken up to known_step_
  std::int64_t known_step_ = 0;  // whose outcome is known
  std::optional<SkippedSteps> skipped_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Config& config, TrainObserver& observer, Communicator& ranks) {
  const std::unique_ptr<Communicator> background = make_background(config, ranks);
  return Run(config, observer, background ? *background : ranks)();
}

TrainResult train(const Config& config, TrainObserver& observer) {
  const std::unique_ptr<Communicator> alone = make_communicator(ThreadHub(1).connect(0));
  return train(config, observer, *alone);
}

}  // namespace keel
