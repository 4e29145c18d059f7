#pragma once
// Turns Ctrl-C, SIGTERM and SIGUSR1 into a flag, so that a program can finish its step and save; and SIGUSR2 into
// another, so that it can save and go on.

#include <csignal>

#include "keel/runtime/language.h"

namespace keel {

// While it lives, the first SIGINT or SIGTERM is only noted. A second SIGINT ends the process at once, as without this
// class. SIGUSR1, which job systems send some time before they end a job, counts as SIGTERM. One SIGINT after it
// changes nothing: Slurm warns both a rank and the process of `keel launch` around it, which passes the warning on as
// SIGINT. A second SIGTERM changes nothing: job systems send it to the group and again to each process. A signal that
// the process ignores (nohup) stays ignored. Only programs install it, never the library. A second one at a time is an
// Error. Signals that the caller's thread held back are taken from then on, those that wait at once.
class SignalScope {
 public:
  static constexpr int kTaken[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

  SignalScope();
  ~SignalScope();  // restores what was installed before
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // The signal that asked for a stop, 0 for none. May be called from any thread.
  int received() const noexcept;
  // While it does, since nothing is there to save and files may not answer, SIGINT and SIGTERM end the process with 128
  // and their number, and so does one of them that has come before. SIGUSR1 is noted as ever.
  void end_at_once(bool does) const noexcept;
  // Whether SIGUSR2 has come since the last call.
  bool takes_save_request() const noexcept;
};

}  // namespace keel
