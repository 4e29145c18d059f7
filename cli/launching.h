#pragma once
// A launcher at work: it starts the ranks of a plan, signals are passed on to them, and it ends when it must.

#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic.h"
#include "launch_plan.h"
#include "rank_report.h"
#include "started_ranks.h"

namespace keel::cli {

// Launchers pass these on to every rank on every host, and the process around a rank gives it what they stand for.
// Signals that end a program would end the launcher itself, and with it the ranks before they have saved.
constexpr int kAsInterrupt = SIGUSR1;
int as_terminate(Launcher::Kind kind);

// Whether the command is one of keel's that end well when they are asked to stop.
bool takes_stops(const std::vector<std::string>& command);

// What each rank runs, without what starts it.
std::vector<std::string> program_of(const LaunchPlan& plan);

// Whether all ranks of the plan are on this machine.
bool is_here(const LaunchPlan& plan);

class Launching {
 public:
  explicit Launching(const LaunchPlan& plan) : plan_(plan), started_(is_here(plan) ? plan.ranks : 0) {}

  // Called ten times a second with what ranks have said so far; after it has returned true they save and end.
  using AsksToEnd = std::function<bool(const std::vector<RankReport>&)>;
  // Once.
  SessionEnd run(AsksToEnd asks_to_end = {});

 private:
  using Clock = std::chrono::steady_clock;

  void take_signal(pid_t child, int number);
  void pass_on(pid_t child, int number);
  void look(pid_t child);
  void end_what_hangs(pid_t child);
  int code_of(int exit_code, int signal_number);

  const LaunchPlan& plan_;
  StartedRanks started_;
  ReportReader reports_;
  AsksToEnd asks_to_end_;
  SessionEnd end_;
  int interrupts_ = 0, terminations_ = 0, last_ = 0;
  std::optional<Clock::time_point> hurried_;  // when the ranks were to end at once
  bool was_terminated_ = false, was_killed_ = false;
};

}  // namespace keel::cli
