#pragma once
// What a training run tells while it works, and an observer that shows it on a console.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/tasks/metric.h"

namespace keel {

struct StepReport {
  std::int64_t step = 0;               // steps done
  std::int64_t steps = 0;              // of the whole run
  double loss = 0;                     // mean over the step's weights, in nats where it is a cross-entropy
  std::string unit = "tokens";         // that speed is told in, see Task::unit()
  double units_per_s = 0;              // trained
  double lr = 0;                       // used by this step
  double grad_norm = 0;                // before clipping
  std::optional<double> seconds_left;  // nothing while it cannot be estimated
  double seconds = 0;                  // of the run, as far as its time limit counts them
  double time_limit = 0;               // seconds; 0: none
};

// What an evaluation calls the loss of the only validation set; that of a set with a name is "NAME/loss".
inline constexpr std::string_view kValidationLoss = "validation_loss";

struct EvalReport {
  std::int64_t step = 0;
  std::vector<NamedNumber> values = {};  // of all metrics; one that is not defined is NaN
  double seconds = 0;                    // that the evaluation took
  // Nothing where there is no such value.
  std::optional<double> find(std::string_view name) const;
};

struct Logged;  // keel/trainer/logged.h
enum class RecordKind : unsigned char;

struct CheckpointReport {
  std::int64_t step = 0;
  std::string path;
};

// Called by the training thread, in the order of events. A function that throws ends the run.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // On the first rank, now and then while a file of data is indexed: how much of it is done. The last call for a file
  // has all.
  virtual void on_reading(std::uint64_t /*done*/, std::uint64_t /*all*/) {}
  // On every rank, when it has read what it begins with, and before it writes anything.
  virtual void on_begin() {}
  virtual void on_step(const StepReport&) {}
  // On the first rank, when a line of metrics.jsonl was written: every log.every steps, after evaluations, at the end.
  virtual void on_record(std::int64_t /*step*/, RecordKind /*kind*/, std::span<const Logged> /*values*/) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_checkpoint(const CheckpointReport&) {}
  virtual void on_message(LogLevel, std::string_view) {}
  // On a rank that is the first from now on, as those before it were lost (outer.on_failure): it shows what they did.
  virtual void on_first() {}
  // Asked after each step; true ends the run in good order: it saves and returns.
  virtual bool stop_requested() { return false; }
  // Asked after each step; true makes a checkpoint.
  virtual bool save_requested() { return false; }
};

struct ConsoleOptions {
  bool terminal = false;             // true: one line is redrawn in place; false: plain lines
  bool utf8 = false;                 // the bar may use block characters
  double interval = 10;              // seconds between two plain lines
  std::function<int()> width = {};   // columns, asked at every draw; without it 80
  std::function<double()> now = {};  // seconds of a steady clock; without it the system's
};

// "[####....]": `columns` characters between the brackets, of which the fraction `done` is filled, in eighths where the
// terminal shows UTF-8.
std::string progress_bar(double done, int columns, bool utf8);

// Whether the environment asks for UTF-8, as the C library reads it: LC_ALL, LC_CTYPE, LANG, the first that is set.
bool locale_is_utf8();

// What suits a file descriptor: a terminal's width and alphabet, or plain lines for a pipe or file.
ConsoleOptions console_options(int file_descriptor);

// A progress line (at most 10 redraws a second), and one line for everything else that happens.
// May be called from several threads.
class ConsoleObserver : public TrainObserver {
 public:
  // `out` must outlive the observer.
  explicit ConsoleObserver(std::ostream& out, ConsoleOptions options = {});
  ~ConsoleObserver() override;  // leaves the cursor on a new line

  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_checkpoint(const CheckpointReport& report) override;
  void on_message(LogLevel level, std::string_view message) override;

 private:
  void print_line(std::string_view line);
  std::string progress_line(const StepReport& report) const;
  double now() const;

  std::ostream& out_;
  ConsoleOptions options_;
  std::mutex mutex_;
  std::string shown_;  // the progress line on the terminal; empty: none
  std::optional<double> last_draw_;
};

// "950", "20.1k", "1.25M".
std::string compact_number(double value);
// "0:42", "3:07", "1:02:03", "2d 03h".
std::string compact_duration(double seconds);

}  // namespace keel
