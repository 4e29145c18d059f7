#include "started_ranks.h"

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
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(listener_, ranks) != 0)
    return;
  length = sizeof address;
  if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  address_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
}

StartedRanks::~StartedRanks() {
  if (listener_ >= 0) ::close(listener_);
}

void StartedRanks::wait(pid_t child) {
  for (int looks = 0; looks < 600 && !address_.empty(); ++looks) {
    for (int rank = -1; missing_ > 0 && (rank = ::accept(listener_, nullptr, nullptr)) >= 0; --missing_) ::close(rank);
    if (missing_ == 0) return;
    siginfo_t ended = {};
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == child) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void StartedRanks::tell() {
  const char* name = std::getenv(kVariable);
  if (name == nullptr || *name == 0) return;
  const int rank = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  const socklen_t length = fill(address, name);
  // A launcher that is gone waits for nobody.
  static_cast<void>(::connect(rank, reinterpret_cast<const sockaddr*>(&address), length));
  if (rank >= 0) ::close(rank);
}

}  // namespace keel::cli
