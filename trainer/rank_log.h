#pragma once
// A rank's own log file: everything that the observer of its run hears.

#include <fstream>
#include <sstream>
#include <string>

#include "keel/trainer/progress.h"

namespace keel {

// Passes everything on, and writes it as lines to a file once open() was called; lines from before are written then.
class RankLog : public TrainObserver {
 public:
  explicit RankLog(TrainObserver& observer) : observer_(observer), lines_(early_) {}

  // Appends to the file. An Error of kind io where it cannot be opened.
  void open(const std::string& path);

  void on_step(const StepReport& report) override;
  void on_record(std::int64_t step, RecordKind kind, std::span<const Logged> values) override {
    observer_.on_record(step, kind, values);
  }
  void on_eval(const EvalReport& report) override;
  void on_checkpoint(const CheckpointReport& report) override;
  void on_message(LogLevel level, std::string_view message) override;
  void on_begin() override { observer_.on_begin(); }
  void on_first() override { observer_.on_first(); }
  bool stop_requested() override { return observer_.stop_requested(); }
  bool save_requested() override { return observer_.save_requested(); }

 private:
  void keep();

  TrainObserver& observer_;
  std::string path_;
  std::stringstream early_;
  std::ofstream file_;
  ConsoleObserver lines_;
};

}  // namespace keel
