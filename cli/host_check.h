#pragma once
// Which hosts answer: each is asked in the way in which the launcher starts ranks there.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "launch_plan.h"

namespace keel::cli {

// Asks all hosts at a time. Those that are silent until the deadline, or refuse, do not answer.
class HostCheck {
 public:
  HostCheck(const std::vector<std::string>& hosts, const Machine& machine, std::chrono::milliseconds deadline);
  ~HostCheck();  // ends what still asks
  HostCheck(const HostCheck&) = delete;
  HostCheck& operator=(const HostCheck&) = delete;

  // Whether all is known. Does not wait.
  bool is_over();
  void wait();
  // Once it is over.
  const std::vector<std::string>& silent() const { return silent_; }

 private:
  struct Question {
    std::string host;
    pid_t process;
  };
  std::vector<Question> open_;
  std::vector<std::string> silent_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace keel::cli
