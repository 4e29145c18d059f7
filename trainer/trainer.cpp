#include "keel/trainer/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "keel/data/prefetch.h"
#include "keel/kernels/update.h"
#include "keel/optim/schedule.h"
#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/device.h"
#include "keel/trainer/diagnosis.h"
#include "keel/trainer/evaluation.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/micro_step.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/resume.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/task.h"

namespace keel {
namespace {

constexpr int kMostSkipped = 10;  // steps in a row whose gradient may be not finite

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Context make_context(const Config& config, TrainObserver& observer) {
  ContextOptions options;
  options.device = choose_device(config.device);
  options.threads = config.threads;
  options.kernels = config.kernels;
  options.log = [&observer](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  return Context::create(std::move(options));
}

// Chosen once, when the run begins: a probe may come out differently the next time.
Strategy::Precision decide_precision(const Config& config, const Context& context, const std::optional<Resume>& resume,
                                     TrainObserver& observer) {
  Strategy::Precision precision = config.strategy.precision;
  if (precision == Strategy::Precision::automatic && resume)
    precision = parse_config(resume->state.config, resume->path + "/state.json").strategy.precision;
  if (precision != Strategy::Precision::automatic) return precision;
  const PrecisionChoice choice = choose_precision(context, config.model.width);
  observer.on_message(LogLevel::info, choice.reason);
  return choice.precision;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::uint64_t seed) {
  if (config.type == OptimizerConfig::Type::adamw)
    return make_adamw({.beta1 = config.betas[0],
                       .beta2 = config.betas[1],
                       .epsilon = config.eps,
                       .weight_decay = config.weight_decay,
                       .stochastic_rounding = config.stochastic_rounding,
                       .seed = seed});
  return make_sgd({.momentum = config.momentum, .weight_decay = config.weight_decay, .nesterov = config.nesterov});
}

Schedule make_schedule(const Config& config) {
  const auto decay = [&] {
    switch (config.scheduler.type) {
      case SchedulerConfig::Type::cosine: return Decay::cosine;
      case SchedulerConfig::Type::linear: return Decay::linear;
      case SchedulerConfig::Type::constant: break;
    }
    return Decay::constant;
  }();
  return {.decay = decay,
          .warmup = config.scheduler.warmup,
          .steps = config.scheduler.steps,
          .final_factor = config.scheduler.min_lr / config.optimizer.lr};
}

// f64 (n): the learning rate after i taken steps; the last one stays.
Tensor make_rates(const Config& config, const Context& context) {
  const Schedule schedule = make_schedule(config);
  const std::int64_t last = schedule.decay == Decay::constant ? schedule.warmup : schedule.steps;
  std::vector<double> rates;
  for (std::int64_t i = 0; i <= std::min(last, config.steps); ++i)
    rates.push_back(config.optimizer.lr * schedule.factor(i));
  return from_values(context, rates, {static_cast<std::int64_t>(rates.size())}, Purpose::workspace);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// One run: what it is made of, and the loop.
class Run {
 public:
  Run(const Config& config, TrainObserver& observer)
      : config_(config),
        observer_(observer),
        folder_(config.run),
        context_(make_context(config, observer)),
        task_(open_task(config, context_.host())),
        model_(gpt_options(config, task_.vocabulary)),
        resume_(find_resume(config, folder_, task_, observer)),
        rates_(make_rates(config, context_)),
        micro_batches_(divide_rows(config.batch.global, config.batch.micro)),
        precision_(decide_precision(config, context_, resume_, observer)),
        engine_(model_, context_, make_optimizer(config.optimizer, config.seed),
                {.policy = PrecisionPolicy::of(precision_ == Strategy::Precision::bf16 ? DType::bf16 : DType::f32),
                 .seed = config.seed,
                 .micro_batches = static_cast<std::int64_t>(micro_batches_.size()),
                 .clip = config.clip}) {
    if (config.cuda_graph) graph_.emplace(model_, engine_);
    if (resume_) load_checkpoint(resume_->path, resume_->state, engine_);
    if (resume_) state_ = resume_->state;
    config_.strategy.precision = precision_;
    state_.config = to_yaml(config_);
    saved_ = state_.step;
    if (const std::string note = single_process_note(config.strategy); !note.empty())
      observer_.on_message(LogLevel::info, note);
  }

  TrainResult operator()() {
    write_description();
    metrics_ = std::make_unique<MetricsWriter>(folder_.metrics(), state_.step);
    try {
      loop();
    } catch (...) {
      save_after_failure();
      throw;
    }
    result_.step = state_.step;
    result_.memory = context_.memory();
    return result_;
  }

 private:
  void write_description() const {
    std::error_code code;
    std::filesystem::create_directories(folder_.path() + "/checkpoints", code);
    if (code) throw Error(concat("cannot make the folder '", folder_.path(), "': ", code.message()), ErrorKind::io);
    write_text_file(folder_.config(), to_yaml(config_));
    if (task_.tokenizer) save_tokenizer(folder_.tokenizer(), *task_.tokenizer);
  }

  void loop() {
    PrefetchLoader batches(task_.training, state_.step, micro_batches_, 2,
                           context_.stream().is_asynchronous() ? context_ : Context());
    began_ = last_report_ = seconds_now();
    result_.end = TrainEnd::finished;
    while (state_.step < config_.steps) {
      train_step(batches);
      const bool stopped = observer_.stop_requested();
      const bool late = config_.time_limit > 0 && seconds_now() - began_ >= config_.time_limit;
      if (stopped || late) result_.end = stopped ? TrainEnd::stopped : TrainEnd::time_limit;
      const bool last = stopped || late || state_.step == config_.steps;
      const bool evaluates = !stopped && (last || is_due(config_.eval.every));
      const bool saves = !last && is_due(config_.checkpoint.every);
      if (last || evaluates || saves) finish_step();
      if (evaluates) evaluate_now();
      if (last) break;
      if (saves) save_or_warn();
      if (evaluates || saves) last_report_ = seconds_now();  // that was no part of a step
    }
    write_memory();
    if (saved_ < state_.step || !std::filesystem::exists(folder_.model())) save();
  }

  bool is_due(std::int64_t every) const { return is_due(every, state_.step); }
  static bool is_due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

  // A step whose numbers may still be on their way. A device works on the next one while they are read.
  struct Pending {
    struct Micro {
      Batch batch;
      RandomStream random;
      HostCopy loss;
    };
    std::int64_t step;  // counted from 1
    std::vector<Micro> micro_batches;
    std::int64_t tokens = 0;         // targets that count
    std::int64_t tokens_of_run = 0;  // by its end
    PendingStep result;
  };

  void train_step(PrefetchLoader& batches) {
    const bool asynchronous = context_.stream().is_asynchronous();
    Pending pending{state_.step + 1, {}, 0, 0, {}};
    for (std::size_t i = 0; i < micro_batches_.size(); ++i) {
      const Batch batch = *batches.next();
      const RandomStream random{config_.seed, static_cast<std::uint64_t>(state_.step), 0};
      pending.tokens += batch.target_tokens;
      if (graph_) {
        pending.micro_batches.push_back({batch, random, graph_->run(batch)});
        continue;
      }
      Forward pass{.training = true, .random = random, .sample_ids = batch.sample_ids};
      const CrossEntropyLoss result = model_.loss(batch.inputs, batch.targets, pass);
      pending.micro_batches.push_back({batch, random, HostCopy(result.loss.value())});
      if (!asynchronous) loss_of(pending, i);  // before it costs a backward
      engine_.backward(result.loss, batch.target_tokens);
    }
    pending.result = engine_.step(rates_);
    ++state_.step;
    state_.tokens += pending.tokens;
    pending.tokens_of_run = state_.tokens;
    const std::optional<Pending> before = std::exchange(pending_, std::move(pending));
    finish(before);
    if (!asynchronous) finish_step();
  }

  double loss_of(const Pending& pending, std::size_t micro_batch) {
    const Pending::Micro& micro = pending.micro_batches[micro_batch];
    const double loss = micro.loss.get().item();
    if (!std::isfinite(loss)) fail_on(pending.step, loss, micro.batch, micro.random);
    return loss;
  }

  // Reads and reports the step that is under way, if any.
  void finish_step() { finish(std::exchange(pending_, std::nullopt)); }

  void finish(const std::optional<Pending>& under_way) {
    if (!under_way) return;
    const Pending& pending = *under_way;
    double loss = 0;
    for (std::size_t i = 0; i < pending.micro_batches.size(); ++i)
      loss += loss_of(pending, i) * static_cast<double>(pending.micro_batches[i].batch.target_tokens);
    result_.loss = loss / static_cast<double>(pending.tokens);
    const StepResult result = pending.result.get();
    if (!result.taken) note_skipped(pending.step, result);
    else skipped_ = 0;
    const double now = seconds_now();
    report(pending, result, now - std::exchange(last_report_, now));
  }

  void report(const Pending& pending, const StepResult& result, double seconds) {
    constexpr double kKept = 0.9;  // of the mean duration, which forgets
    step_seconds_ = step_seconds_ == 0 ? seconds : kKept * step_seconds_ + (1 - kKept) * seconds;
    StepReport report;
    report.step = pending.step;
    report.steps = config_.steps;
    report.loss = result_.loss;
    report.tokens_per_s = static_cast<double>(pending.tokens) / step_seconds_;
    report.lr = result.lr;
    report.grad_norm = result.grad_norm;
    double left = step_seconds_ * static_cast<double>(config_.steps - pending.step);
    if (config_.time_limit > 0) left = std::min(left, std::max(0.0, config_.time_limit - (seconds_now() - began_)));
    report.seconds_left = left;
    if (is_due(config_.log.every, pending.step) || pending.step == config_.steps)
      metrics_->write(pending.step, {{"loss", result_.loss},
                                     {"lr", result.lr},
                                     {"grad_norm", result.grad_norm},
                                     {"tokens_per_s", report.tokens_per_s},
                                     {"tokens", pending.tokens_of_run}});
    observer_.on_step(report);
  }

  void note_skipped(std::int64_t step, const StepResult& result) {
    observer_.on_message(LogLevel::warning,
                         concat("step ", step, " was skipped: the gradient of ", result.first_bad, " is not finite"));
    if (++skipped_ < kMostSkipped) return;
    throw Error(concat(kMostSkipped, " steps in a row had gradients that were not finite, the last at step ", step,
                       " in ", result.first_bad, "; a lower optimizer.lr may help"),
                ErrorKind::numeric);
  }

  [[noreturn]] void fail_on(std::int64_t step, double loss, const Batch& batch, const RandomStream& random) {
    const std::string bad = first_bad_tensor(model_, batch, random);
    throw Error(concat("step ", step, ": the loss is ", loss, "; first bad tensor: ",
                       bad.empty() ? "none when repeated" : bad, "; a lower optimizer.lr or a clip may help"),
                ErrorKind::numeric);
  }

  void evaluate_now() {
    if (!task_.validation) return;
    const double start = seconds_now();
    EvalReport report =
        evaluate(model_, *task_.validation, {.batches = task_.validation_batches, .answers = task_.answers});
    report.step = state_.step;
    report.seconds = seconds_now() - start;
    if (report.exact_match)
      metrics_->write(state_.step, {{"validation_loss", *report.loss}, {"exact_match", *report.exact_match}});
    else metrics_->write(state_.step, {{"validation_loss", *report.loss}});
    result_.evaluation = report;
    observer_.on_eval(report);
  }

  void write_memory() {
    const MemoryReport memory = context_.memory();
    std::array<std::string, kPurposeCount> names;
    std::vector<Metric> metrics;
    for (std::size_t i = 0; i < names.size(); ++i) {
      names[i] = concat("peak_", name_of(static_cast<Purpose>(i)), "_bytes");
      metrics.push_back({names[i], static_cast<std::int64_t>(memory.by_purpose[i].peak)});
    }
    metrics.push_back({"peak_total_bytes", static_cast<std::int64_t>(memory.total.peak)});
    result_.peak_resident_bytes = peak_resident_bytes();
    metrics.push_back({"peak_resident_bytes", result_.peak_resident_bytes});
    metrics_->write(state_.step, metrics);
  }

  void save() {
    const std::string path = folder_.checkpoint(state_.step);
    state_.steps_taken = engine_.steps_taken();
    save_checkpoint(path, engine_, state_);
    saved_ = state_.step;
    publish_weights(path, folder_.model());
    observer_.on_checkpoint({state_.step, path});
    std::vector<std::int64_t> steps = folder_.checkpoint_steps();
    while (static_cast<std::int64_t>(steps.size()) > config_.checkpoint.keep) {
      std::error_code ignored;  // an old checkpoint that cannot be removed harms nobody
      std::filesystem::remove_all(folder_.checkpoint(steps.front()), ignored);
      steps.erase(steps.begin());
    }
  }

  // In the middle of a run a full disk is no reason to lose the training.
  void save_or_warn() {
    try {
      save();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;
      observer_.on_message(LogLevel::error, concat("no checkpoint of step ", state_.step, ": ", error.what()));
    }
  }

  void save_after_failure() noexcept {
    try {
      finish_step();                    // its numbers belong to what is saved
    } catch (const std::exception&) {}  // the error that ended the run is the one to report
    try {
      engine_.zero_grad();
      for (const auto& [name, weight] : engine_.weights())
        if (!kernels::all_finite(weight)) return;  // the checkpoint before is worth more
      if (saved_ < state_.step) save();
    } catch (const std::exception& error) {
      try {
        observer_.on_message(LogLevel::error, concat("step ", state_.step, " could not be saved: ", error.what()));
      } catch (...) { return; }  // the error that ended the run is the one to report
    }
  }

  Config config_;  // with the precision that was chosen
  TrainObserver& observer_;
  RunFolder folder_;
  Context context_;
  Task task_;
  Gpt model_;
  std::optional<Resume> resume_;
  Tensor rates_;  // learning rates by taken steps
  std::vector<RowRange> micro_batches_;
  Strategy::Precision precision_;
  Engine engine_;
  std::optional<GraphedMicroStep> graph_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::optional<Pending> pending_;
  double began_ = 0, last_report_ = 0;  // seconds
  TrainState state_;
  std::int64_t saved_ = 0;  // step of the newest checkpoint
  int skipped_ = 0;         // steps in a row
  double step_seconds_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Config& config, TrainObserver& observer) { return Run(config, observer)(); }

}  // namespace keel
