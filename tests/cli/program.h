#pragma once
// Runs the program `keel` and collects what it prints.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

struct Outcome {
  int code = -1;  // exit code; 128 + n after signal n
  std::string out, err;
  std::int64_t peak = 0;  // bytes in memory, as the system counts them
};

// The program at work. `arguments` as typed in a shell, in the folder `where`; `before` is what that shell does first.
class RunningProgram {
 public:
  explicit RunningProgram(const std::string& arguments, const std::string& where = ".",
                          const std::string& before = "true") {
    const std::string command = concat("cd '", where, "' && ", before, " && exec '", KEEL_PROGRAM, "' ", arguments,
                                       " >'", output_ / "out", "' 2>'", output_ / "err", "' </dev/null");
    process_ = ::fork();
    KEEL_CHECK(process_ >= 0, "cannot start a process");
    if (process_ > 0) return;
    for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);  // a suite in the background ignores SIGINT
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~RunningProgram() {
    if (process_ <= 0) return;
    send(SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void send(int signal_number) const { ::kill(process_, signal_number); }

  bool has_ended() const {
    siginfo_t ended = {};
    return process_ <= 0 || (::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                             ended.si_pid == process_);
  }

  // Whether that signal would not end it any more: it is handled, or blocked and waited for (proc(5), SigCgt and
  // SigBlk).
  bool hears(int signal_number) const {
    const std::string status = read_text_file(concat("/proc/", process_, "/status"));
    const auto has = [&](const std::string& mask) {
      const auto at = status.find(mask);
      return at != std::string::npos &&
             (std::stoull(status.substr(at + mask.size()), nullptr, 16) >> (signal_number - 1) & 1) != 0;
    };
    return has("\nSigCgt:\t") || has("\nSigBlk:\t");
  }

  std::string said_so_far() const { return read_text_file(output_ / "out") + read_text_file(output_ / "err"); }

  Outcome wait() {
    int status = 0;
    rusage use = {};
    ::wait4(process_, &status, 0, &use);
    process_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text_file(output_ / "out"),
            read_text_file(output_ / "err"), std::int64_t{use.ru_maxrss} * 1024};
  }

 private:
  TemporaryFolder output_;
  pid_t process_ = 0;
};

inline Outcome run_keel(const std::string& arguments, const std::string& where = ".",
                        const std::string& before = "true") {
  return RunningProgram(arguments, where, before).wait();
}

}  // namespace keel::testing
