#pragma once
// One child process, to which signals are passed on.

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::cli {

// Those that run_process() passes on.
sigset_t signals_passed_on();

// While it lives, the signals that run_process() passes on wait for it; children start as if nothing were held back.
// One at a time, in the thread that starts them.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();  // those that still wait take effect
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// The signals that a program starts with held back. `takes_stops`: it has a SignalScope, for which those wait that the
// scope takes.
sigset_t mask_for_exec(bool takes_stops);

// The exit code of a process, or the number of the signal that killed it.
struct ProcessEnd {
  int code = 0;
  int signal = 0;
  pid_t id = 0;
};

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};  // to add
  // Called for SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGALRM, in the caller's thread.
  std::function<void(pid_t child, int signal_number)> on_signal;
  std::function<void()> on_start = {};            // once signals are passed on
  std::function<void(pid_t child)> on_wait = {};  // ten times a second once a signal has come
  bool waits_from_the_start = false;              // on_wait need not wait for a signal
  // Takes what the child writes to its standard error, in pieces, instead of ours.
  std::function<void(std::string_view text)> on_error_text = {};
  int signal_at_our_death = 0;  // that the child gets when this process is killed
  bool reads_terminal = true;   // false: a terminal as standard input is replaced by nothing
  bool takes_stops = false;     // see mask_for_exec()
};

// Runs a command, found in PATH, in a process group of its own, and waits for its end. Error where it cannot be
// started.
ProcessEnd run_process(const std::vector<std::string>& command, const ProcessOptions& options);

// What a command prints to the standard output; empty where it cannot be started.
std::string output_of(const std::vector<std::string>& command);

// Whether an exit code says that somebody asked for the end.
inline bool is_a_stop(int code) { return code == 128 + SIGINT || code == 128 + SIGTERM; }

}  // namespace keel::cli
