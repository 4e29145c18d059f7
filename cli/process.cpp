#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/trainer/signals.h"

namespace keel::cli {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM};

// What was held back before a HeldSignals; null where there is none.
const sigset_t* mask_before = nullptr;

std::vector<char*> pointers(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  return words;
}

void replace_input_by_nothing() {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
}

// In the child: becomes the command, or tells through `failure` why not.
[[noreturn]] void become(const std::vector<std::string>& command, const ProcessOptions& options, const sigset_t& mask,
                         int failure, int errors) {
  ::setpgid(0, 0);
  if (errors >= 0) ::dup2(errors, STDERR_FILENO);
  if (options.signal_at_our_death != 0) ::prctl(PR_SET_PDEATHSIG, options.signal_at_our_death);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!options.reads_terminal && ::isatty(STDIN_FILENO) != 0) replace_input_by_nothing();
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(command[0].c_str(), pointers(command).data());
  const int reason = errno;
  static_cast<void>(!::write(failure, &reason, sizeof reason));
  ::_exit(127);
}

// The standard error of the child, where somebody takes it.
class ErrorText {
 public:
  explicit ErrorText(const std::function<void(std::string_view)>& take) : take_(take) {
    if (!take_) return;
    KEEL_CHECK(::pipe2(ends_.data(), O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~ErrorText() {
    close_for_writing();
    if (ends_[0] >= 0) ::close(ends_[0]);
  }
  ErrorText(const ErrorText&) = delete;
  ErrorText& operator=(const ErrorText&) = delete;

  int for_writing() const { return ends_[1]; }
  void close_for_writing() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }
  // What is there by now.
  void pass() const {
    if (!take_) return;
    std::array<char, 4096> part;
    for (ssize_t n = 0; (n = ::read(ends_[0], part.data(), part.size())) > 0;)
      take_({part.data(), static_cast<std::size_t>(n)});
  }

 private:
  const std::function<void(std::string_view)>& take_;
  std::array<int, 2> ends_ = {-1, -1};
};

// Waits while the signals of `mask` are blocked.
ProcessEnd wait_for(pid_t child, const sigset_t& mask, const ProcessOptions& options, const ErrorText& errors) {
  constexpr timespec kNowAndThen = {0, 100'000'000};
  bool has_come = options.waits_from_the_start;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    errors.pass();
    if (ended == child && WIFEXITED(status)) return {WEXITSTATUS(status), 0, child};
    if (ended == child && WIFSIGNALED(status)) return {0, WTERMSIG(status), child};
    const bool looks = has_come && options.on_wait;
    const bool waits_for_ever = !looks && !options.on_error_text;
    const int signal_number =
        waits_for_ever ? ::sigwaitinfo(&mask, nullptr) : ::sigtimedwait(&mask, nullptr, &kNowAndThen);
    if (signal_number > 0 && signal_number != SIGCHLD) {
      has_come = true;
      options.on_signal(child, signal_number);
    }
    if (looks) options.on_wait(child);
  }
}

}  // namespace

sigset_t signals_passed_on() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kPassedOn) sigaddset(&set, number);
  return set;
}

HeldSignals::HeldSignals() {
  const sigset_t held = signals_passed_on();
  ::sigprocmask(SIG_BLOCK, &held, &before_);
  mask_before = &before_;
}

HeldSignals::~HeldSignals() {
  mask_before = nullptr;
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

sigset_t mask_for_exec(bool takes_stops) {
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  if (mask_before != nullptr) mask = *mask_before;
  if (takes_stops)
    for (const int number : SignalScope::kTaken) sigaddset(&mask, number);
  return mask;
}

ProcessEnd run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  std::array<int, 2> failure = {};
  KEEL_CHECK(::pipe2(failure.data(), O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
  // Signals wait from here on, so that none is lost between two calls.
  const sigset_t mask_of_child = mask_for_exec(options.takes_stops);
  sigset_t waiting = signals_passed_on(), before;
  sigaddset(&waiting, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &waiting, &before);

  ErrorText errors(options.on_error_text);
  const pid_t child = ::fork();
  KEEL_CHECK(child >= 0, "cannot start a process: ", std::strerror(errno));
  if (child == 0) become(command, options, mask_of_child, failure[1], errors.for_writing());
  ::setpgid(child, child);
  errors.close_for_writing();
  ::close(failure[1]);
  int reason = 0;
  const bool failed = ::read(failure[0], &reason, sizeof reason) == sizeof reason;
  ::close(failure[0]);
  if (!failed && options.on_start) options.on_start();
  const ProcessEnd end = wait_for(child, waiting, options, errors);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (failed) throw Error(concat("cannot start '", command[0], "': ", std::strerror(reason)), ErrorKind::io);
  return end;
}

std::string output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const sigset_t mask = mask_for_exec(false);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    replace_input_by_nothing();
    ::dup2(ends[1], STDOUT_FILENO);
    if (const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) ::dup2(nothing, STDERR_FILENO);
    ::execvp(command[0].c_str(), pointers(command).data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return text;
}

}  // namespace keel::cli
