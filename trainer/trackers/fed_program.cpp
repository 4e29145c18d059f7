#include "keel/trainer/trackers/fed_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

// posix_spawn's settings: standard input from a pipe, outputs to a file, no signal held back or ignored.
class Start {
 public:
  Start(int input, const std::string& log) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
  }
  ~Start() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  // 0, or the system's reason.
  int run(const std::vector<std::string>& command, int& id) const {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return ::posix_spawnp(&id, words.front(), &actions_, &attributes_, words.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

FedProgram::FedProgram(std::vector<std::string> command, std::string log)
    : command_(std::move(command)), log_(std::move(log)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(concat("there is no pipe: ", reason(errno)), ErrorKind::io);
  input_ = ends[1];
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
  const int code = Start(ends[0], log_).run(command_, id_);
  ::close(ends[0]);
  if (code == 0) return;
  ::close(input_);
  throw Error(concat("cannot start '", command_.front(), "' (outputs to '", log_, "'): ", reason(code)), ErrorKind::io);
}

FedProgram::~FedProgram() {
  if (input_ != kNone) ::close(input_);
  kill();
}

void FedProgram::fail(const std::string& what) const {
  throw Error(concat("'", command_.front(), "' ", what, "; what it has said is in '", log_, "'"), ErrorKind::io);
}

std::string FedProgram::how_it_ended() const {
  if (WIFSIGNALED(status_)) return concat("was ended by signal ", WTERMSIG(status_));
  return concat("has ended with exit code ", WEXITSTATUS(status_));
}

bool FedProgram::has_ended() {
  if (id_ == kNone) return true;
  int found = 0;
  do found = ::waitpid(id_, &status_, WNOHANG);
  while (found < 0 && errno == EINTR);
  if (found == 0) return false;
  id_ = kNone;  // where somebody else has waited for it, with the exit code 0
  return true;
}

bool FedProgram::waited(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!has_ended()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void FedProgram::kill() {
  if (has_ended()) return;
  ::kill(-id_, SIGTERM);
  if (waited(1)) return;
  ::kill(-id_, SIGKILL);
  while (::waitpid(id_, &status_, 0) < 0 && errno == EINTR) {}
  id_ = kNone;
}

void FedProgram::write(std::string_view text, double patience) {
  while (!text.empty()) {
    const ssize_t written = ::write(input_, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      fail(waited(1) ? how_it_ended() : "has closed its standard input");
    } else if (errno == EAGAIN) {
      pollfd ready{.fd = input_, .events = POLLOUT, .revents = 0};
      if (::poll(&ready, 1, static_cast<int>(1000 * patience)) == 0)
        fail(concat("has not read its standard input for ", patience, " seconds"));
    } else if (errno != EINTR) {
      fail(concat("cannot be written to: ", reason(errno)));
    }
  }
}

void FedProgram::finish(double patience) {
  ::close(std::exchange(input_, kNone));
  if (!waited(patience)) {
    kill();
    fail(concat("was still running ", patience, " seconds after its input had ended, and was killed"));
  }
  if (status_ != 0) fail(how_it_ended());
}

}  // namespace keel
