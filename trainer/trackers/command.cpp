// A program of the user's that gets everything as JSON lines on its standard input.

#include <algorithm>
#include <optional>

#include "keel/runtime/error.h"
#include "keel/trainer/trackers/all.h"
#include "keel/trainer/trackers/fed_program.h"
#include "keel/trainer/trackers/json_events.h"
#include "keel/trainer/trackers/paths.h"

namespace keel {
namespace {

constexpr double kSecondsToEnd = 7;  // of the ten that a tracker has

class CommandTracker : public Tracker {
 public:
  explicit CommandTracker(const Settings& settings)
      : command_(settings.texts("command")), log_(settings.text("log")), patience_(settings.number("patience")) {
    KEEL_CHECK(!command_.empty() && !command_.front().empty(),
               "command is empty; it names a program and its words, as in [python3, mine.py]");
  }

  void begin(const RunDescription& run) override {
    const std::string log = tracker_path(run, log_);
    make_folders_for(log);
    program_.emplace(command_, log);
    tell(start_line(run), patience_);
  }
  void log(std::int64_t step, double seconds, std::span<const Logged> values) override {
    tell(record_line(step, seconds, values), patience_);
  }
  void text(std::string_view name, std::string_view text) override { tell(text_line(name, text), patience_); }
  void artifact(std::string_view name, const std::string& path) override { tell(artifact_line(name, path), patience_); }
  void end(RunStatus status) override {
    if (!program_ || has_failed_) return program_.reset();
    tell(end_line(status), std::min(patience_, kSecondsToEnd));
    program_->finish(kSecondsToEnd);
  }

 private:
  void tell(const std::string& line, double patience) {
    has_failed_ = true;
    program_->write(line, patience);
    has_failed_ = false;
  }

  std::vector<std::string> command_;
  std::string log_;
  double patience_;
  std::optional<FedProgram> program_;
  bool has_failed_ = false;
};

}  // namespace

TrackerEntry command_tracker() {
  return {.name = "command",
          .summary =
              "a program that gets one JSON object a line on its standard input, as W&B, Comet or Aim need it "
              "(examples/trackers)",
          .rows = {{.key = "command",
                    .type = KeyType::texts,
                    .help = "The program, found in PATH, and its words, as in [python3, wandb_tracker.py]."},
                   {.key = "log",
                    .type = KeyType::path,
                    .standard = "logs/tracker-command.log",
                    .help = "Where its outputs go; in the run's folder unless it is a full path."},
                   {.key = "patience",
                    .type = KeyType::number,
                    .standard = "60",
                    .help = "Seconds after which a program that does not read counts as failed.",
                    .low = 0,
                    .high = 86400,
                    .low_open = true}},
          .make = [](const Settings& settings) -> std::unique_ptr<Tracker> {
            return std::make_unique<CommandTracker>(settings);
          }};
}

}  // namespace keel
