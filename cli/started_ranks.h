#pragma once
// What the ranks of this machine tell the launcher: that they have started, and how they ended.

#include <sys/types.h>

#include <string>
#include <vector>

namespace keel::cli {

// The launcher's end: a socket that its environment names to the ranks, and that the system takes back however the
// launcher ends. A signal before all have started would be lost on the way.
class StartedRanks {
 public:
  static constexpr const char* kVariable = "KEEL_LAUNCH_STARTED";

  // `ranks`: how many start here; 0: none that can tell.
  explicit StartedRanks(int ranks);
  ~StartedRanks();
  StartedRanks(const StartedRanks&) = delete;
  StartedRanks& operator=(const StartedRanks&) = delete;

  // The value of the variable; empty where nobody listens.
  const std::string& address() const { return address_; }
  // Blocks until all have, the launcher's child has ended, or a second Ctrl-C comes; half a minute at most.
  void wait(pid_t child);
  // Once the launcher's child has ended: whether it ended ranks by SIGTERM of which none had failed. Launchers that get
  // a SIGTERM do so, and give an exit code of their own.
  bool were_terminated();
  // Kills those that still run, for which no launcher is there any more.
  void kill_those_left();

 private:
  void accept_all();

  std::string address_;
  int listener_ = -1;
  int missing_;
  std::vector<int> ranks_;  // connections
};

// The end of the process around one rank. Nothing happens where no launcher listens.
class StartedRank {
 public:
  StartedRank() = default;
  ~StartedRank();  // or the end of the process, however it comes
  StartedRank(const StartedRank&) = delete;
  StartedRank& operator=(const StartedRank&) = delete;

  void tell_that_it_started();
  void tell_that_it_was_terminated() { tell('T'); }  // by the launcher
  void tell_that_it_failed() { tell('F'); }

 private:
  void tell(char what) const;

  int launcher_ = -1;
};

}  // namespace keel::cli
