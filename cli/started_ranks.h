#pragma once
// Which ranks of this machine have started, told by each to the launcher.

#include <sys/types.h>

#include <string>

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
  // Blocks until all have, or the launcher's child has ended; half a minute at most.
  void wait(pid_t child);
  // Called in the process around one rank: tells that this rank has started.
  static void tell();

 private:
  std::string address_;
  int listener_ = -1;
  int missing_;
};

}  // namespace keel::cli
