#include "started_ranks.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <thread>

namespace keel::cli {
namespace {

// An address without a file: its first byte is zero.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof address.sun_path - 1);
  std::copy_n(name.begin(), count, address.sun_path + 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
}

}  // namespace

StartedRanks::StartedRanks(int ranks) : missing_(ranks) {
  if (ranks == 0) return;
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  // The system chooses a name that is free.
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address.sun_family;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener_, 2 * ranks) != 0)
    return;
  length = sizeof address;
  if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  address_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
}

StartedRanks::~StartedRanks() {
  for (const int rank : ranks_) ::close(rank);
  if (listener_ >= 0) ::close(listener_);
}

void StartedRanks::accept_all() {
  if (address_.empty()) return;
  for (int rank = -1; (rank = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0; --missing_)
    ranks_.push_back(rank);
}

void StartedRanks::wait(pid_t child) {
  for (int looks = 0; looks < 600 && !address_.empty(); ++looks) {
    accept_all();
    sigset_t waiting;
    ::sigpending(&waiting);
    if (missing_ <= 0 || sigismember(&waiting, SIGINT) == 1) return;
    siginfo_t ended = {};
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == child) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool StartedRanks::were_terminated() {
  accept_all();
  bool terminated = false, failed = false;
  for (const int rank : ranks_)
    for (char what = 0; ::recv(rank, &what, 1, 0) == 1;) (what == 'T' ? terminated : failed) = true;
  return terminated && !failed;
}

void StartedRanks::kill_those_left() {
  accept_all();
  for (const int rank : ranks_) {
    char what = 0;
    ssize_t told = 0;
    while ((told = ::recv(rank, &what, 1, 0)) > 0) continue;
    if (told == 0) continue;  // its connection ended with it
    ucred process = {};
    socklen_t length = sizeof process;
    if (::getsockopt(rank, SOL_SOCKET, SO_PEERCRED, &process, &length) == 0 && process.pid > 0)
      ::kill(process.pid, SIGKILL);
  }
}

StartedRank::~StartedRank() {
  if (launcher_ >= 0) ::close(launcher_);
}

void StartedRank::tell_that_it_started() {
  const char* name = std::getenv(StartedRanks::kVariable);
  if (launcher_ >= 0 || name == nullptr || *name == 0) return;
  launcher_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  const socklen_t length = fill(address, name);
  // A launcher that is gone waits for nobody.
  static_cast<void>(::connect(launcher_, reinterpret_cast<const sockaddr*>(&address), length));
}

void StartedRank::tell(char what) const {
  if (launcher_ >= 0) static_cast<void>(::send(launcher_, &what, 1, MSG_NOSIGNAL));
}

}  // namespace keel::cli
