#include "keel/trainer/trainer.h"

#include <sys/resource.h>

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
#include "keel/trainer/diagnosis.h"
#include "keel/trainer/evaluation.h"
#include "keel/trainer/metrics.h"
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
  const Device device = config.device == "auto" ? Device{} : parse_device(config.device);
  if (device.type != DeviceType::cpu)
    throw Error(concat("device: this build of keel computes on cpu, not on ", device), ErrorKind::unsupported);
  ContextOptions options;
  options.device = device;
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

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  if (config.type == OptimizerConfig::Type::adamw)
    return make_adamw({.beta1 = config.betas[0],
                       .beta2 = config.betas[1],
                       .epsilon = config.eps,
                       .weight_decay = config.weight_decay});
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
        task_(open_task(config, context_)),
        model_(gpt_options(config, task_.vocabulary)),
        resume_(find_resume(config, folder_, task_, observer)),
        schedule_(make_schedule(config)),
        micro_batches_(divide_rows(config.batch.global, config.batch.micro)),
        precision_(decide_precision(config, context_, resume_, observer)),
        engine_(model_, context_, make_optimizer(config.optimizer),
                {.policy = PrecisionPolicy::of(precision_ == Strategy::Precision::bf16 ? DType::bf16 : DType::f32),
                 .seed = config.seed,
                 .micro_batches = static_cast<std::int64_t>(micro_batches_.size()),
                 .clip = config.clip}) {
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
    PrefetchLoader batches(task_.training, state_.step, micro_batches_);
    const double began = seconds_now();
    result_.end = TrainEnd::finished;
    while (state_.step < config_.steps) {
      train_step(batches, began);
      const bool stopped = observer_.stop_requested();
      const bool late = config_.time_limit > 0 && seconds_now() - began >= config_.time_limit;
      if (stopped || late) result_.end = stopped ? TrainEnd::stopped : TrainEnd::time_limit;
      const bool last = stopped || late || state_.step == config_.steps;
      if (!stopped && (last || is_due(config_.eval.every))) evaluate_now();
      if (last) break;
      if (is_due(config_.checkpoint.every)) save_or_warn();
    }
    write_memory();
    if (saved_ < state_.step || !std::filesystem::exists(folder_.model())) save();
  }

  bool is_due(std::int64_t every) const { return every > 0 && state_.step % every == 0; }

  void train_step(PrefetchLoader& batches, double began) {
    const double start = seconds_now(), lr = config_.optimizer.lr * schedule_.factor(state_.step);
    double loss = 0;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < micro_batches_.size(); ++i) {
      const Batch batch = *batches.next();
      const RandomStream random{config_.seed, static_cast<std::uint64_t>(state_.step), 0};
      Forward pass{.training = true, .random = random, .sample_ids = batch.sample_ids};
      const CrossEntropyLoss result = model_.loss(batch.inputs, batch.targets, pass);
      const double value = result.count == 0 ? 0 : result.loss.value().item();
      if (!std::isfinite(value)) fail_on(value, batch, random);
      engine_.backward(result.loss, result.count);
      loss += value * static_cast<double>(result.count);
      tokens += result.count;
    }
    const StepResult result = engine_.step(lr);
    ++state_.step;
    state_.steps_taken = engine_.steps_taken();
    state_.tokens += tokens;
    result_.loss = loss / static_cast<double>(tokens);
    if (!result.taken) note_skipped(result);
    else skipped_ = 0;
    report(result, lr, tokens, seconds_now() - start, began);
  }

  void report(const StepResult& result, double lr, std::int64_t tokens, double seconds, double began) {
    constexpr double kKept = 0.9;  // of the mean duration, which forgets
    step_seconds_ = step_seconds_ == 0 ? seconds : kKept * step_seconds_ + (1 - kKept) * seconds;
    StepReport report;
    report.step = state_.step;
    report.steps = config_.steps;
    report.loss = result_.loss;
    report.tokens_per_s = static_cast<double>(tokens) / step_seconds_;
    report.lr = lr;
    report.grad_norm = result.grad_norm;
    double left = step_seconds_ * static_cast<double>(config_.steps - state_.step);
    if (config_.time_limit > 0) left = std::min(left, std::max(0.0, config_.time_limit - (seconds_now() - began)));
    report.seconds_left = left;
    if (is_due(config_.log.every) || state_.step == config_.steps)
      metrics_->write(state_.step, {{"loss", result_.loss},
                                    {"lr", lr},
                                    {"grad_norm", result.grad_norm},
                                    {"tokens_per_s", report.tokens_per_s},
                                    {"tokens", state_.tokens}});
    observer_.on_step(report);
  }

  void note_skipped(const StepResult& result) {
    observer_.on_message(LogLevel::warning, concat("step ", state_.step, " was skipped: the gradient of ",
                                                   result.first_bad, " is not finite"));
    if (++skipped_ < kMostSkipped) return;
    throw Error(concat(kMostSkipped, " steps in a row had gradients that were not finite, the last at step ",
                       state_.step, " in ", result.first_bad, "; a lower optimizer.lr may help"),
                ErrorKind::numeric);
  }

  [[noreturn]] void fail_on(double loss, const Batch& batch, const RandomStream& random) {
    const std::string bad = first_bad_tensor(model_, batch, random);
    throw Error(concat("step ", state_.step + 1, ": the loss is ", loss, "; first bad tensor: ",
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
  Schedule schedule_;
  std::vector<RowRange> micro_batches_;
  Strategy::Precision precision_;
  Engine engine_;
  std::unique_ptr<MetricsWriter> metrics_;
  TrainState state_;
  std::int64_t saved_ = 0;  // step of the newest checkpoint
  int skipped_ = 0;         // steps in a row
  double step_seconds_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Config& config, TrainObserver& observer) { return Run(config, observer)(); }

}  // namespace keel
