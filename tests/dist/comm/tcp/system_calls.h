#pragma once
// Calls of the system's library that tests see, and some of which they answer, each for its own thread.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "keel/dist/comm/tcp_socket.h"
#include "keel/runtime/error.h"

namespace keel::testing {

extern thread_local int polls_without_news;                              // that come next
extern thread_local std::deque<std::function<void()>> at_polls;          // what happens before each of them
extern thread_local bool binds_to_its_peer;                              // the next socket that connects
extern thread_local std::deque<int> errors_of_accepts, errors_of_binds;  // that come next; 0 is none

extern thread_local std::int64_t sendmsg_calls;  // so far
// Errors that the next calls answer with, from the last one on, instead of doing anything.
extern thread_local std::vector<int> errors_of_sends, errors_of_receives;

// What the thread has waited for: for how long at most, and the last file.
struct Poll {
  int milliseconds, last_file;
};
extern thread_local std::vector<Poll> seen_polls;

inline auto door_later(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

inline std::array<Socket, 2> two_ends() {
  std::array<int, 2> ends = {};
  KEEL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "no sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}

}  // namespace keel::testing
