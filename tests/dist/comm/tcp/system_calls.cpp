#include "tests/dist/comm/tcp/system_calls.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace keel::testing {

thread_local int polls_without_news = 0;
thread_local std::deque<std::function<void()>> at_polls;
thread_local bool binds_to_its_peer = false;
thread_local std::deque<int> errors_of_accepts, errors_of_binds;
thread_local std::vector<Poll> seen_polls;
thread_local std::int64_t sendmsg_calls = 0;
thread_local std::vector<int> errors_of_sends, errors_of_receives;

namespace {

bool fails(std::vector<int>& errors) {
  if (errors.empty()) return false;
  errno = errors.back();
  errors.pop_back();
  return true;
}

}  // namespace

}  // namespace keel::testing

// They stand before those of the system's library.
extern "C" int poll(pollfd* files, nfds_t count, int milliseconds) {
  keel::testing::seen_polls.push_back({milliseconds, files[count - 1].fd});
  if (!keel::testing::at_polls.empty()) {
    const std::function<void()> happens = std::move(keel::testing::at_polls.front());
    keel::testing::at_polls.pop_front();
    happens();
  }
  if (keel::testing::polls_without_news > 0) {
    --keel::testing::polls_without_news;
    return 0;
  }
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  return static_cast<int>(
      ::syscall(SYS_ppoll, files, count, milliseconds < 0 ? nullptr : &limit, nullptr, std::size_t{0}));
}
extern "C" int connect(int file, const sockaddr* to, socklen_t length) {
  if (std::exchange(keel::testing::binds_to_its_peer, false) && ::bind(file, to, length) != 0) return -1;
  const auto result = static_cast<int>(::syscall(SYS_connect, file, to, length));
  if (result != 0 || keel::testing::polls_without_news == 0) return result;
  errno = EINPROGRESS;
  return -1;
}
extern "C" int bind(int file, const sockaddr* at, socklen_t length) {
  const int error = keel::testing::errors_of_binds.empty() ? 0 : keel::testing::errors_of_binds.front();
  if (!keel::testing::errors_of_binds.empty()) keel::testing::errors_of_binds.pop_front();
  if (error == 0) return static_cast<int>(::syscall(SYS_bind, file, at, length));
  errno = error;
  return -1;
}
extern "C" int accept4(int file, sockaddr* from, socklen_t* length, int flags) {
  const int error = keel::testing::errors_of_accepts.empty() ? 0 : keel::testing::errors_of_accepts.front();
  if (!keel::testing::errors_of_accepts.empty()) keel::testing::errors_of_accepts.pop_front();
  if (error == 0) return static_cast<int>(::syscall(SYS_accept4, file, from, length, flags));
  errno = error;
  return -1;
}
extern "C" ssize_t sendmsg(int file, const msghdr* message, int flags) {
  ++keel::testing::sendmsg_calls;
  return keel::testing::fails(keel::testing::errors_of_sends) ? -1 : ::syscall(SYS_sendmsg, file, message, flags);
}
extern "C" ssize_t recv(int file, void* data, size_t bytes, int flags) {
  if (keel::testing::fails(keel::testing::errors_of_receives)) return -1;
  return ::syscall(SYS_recvfrom, file, data, bytes, flags, nullptr, nullptr);
}
