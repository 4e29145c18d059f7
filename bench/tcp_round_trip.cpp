// The floor of a small collective over TCP: 64 bytes to another process of this machine and back, over a plain socket.
//
// usage: bench_tcp_round_trip [CORE CORE]: the cores of the two processes; without them the system chooses.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "bench/measure.h"

namespace keel::bench {
namespace {

using Message = std::array<char, 64>;
constexpr int kCalls = 20'000;

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "bench_tcp_round_trip: " << what << " failed\n";
  std::exit(1);
}

void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  require(sched_setaffinity(0, sizeof cores, &cores) == 0, "binding to a core");
}

void send_at_once(int socket) {
  const int on = 1;
  require(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
}

bool send_all(int socket, const Message& message) {
  return send(socket, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}
bool receive_all(int socket, Message& message) {
  return recv(socket, message.data(), message.size(), MSG_WAITALL) == static_cast<ssize_t>(message.size());
}

int run(const std::vector<int>& cores) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  require(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
          "listening");
  Message message = {};
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (!cores.empty()) stay_on(cores[child == 0 ? 1 : 0]);
  if (child == 0) {
    const int peer = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(peer, reinterpret_cast<sockaddr*>(&address), length) == 0, "connecting");
    send_at_once(peer);
    while (receive_all(peer, message) && send_all(peer, message)) {}
    std::_Exit(0);
  }
  const int peer = accept(listener, nullptr, nullptr);
  require(peer >= 0, "accepting");
  send_at_once(peer);
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i)
    seconds.push_back(
        seconds_of([&] { require(send_all(peer, message) && receive_all(peer, message), "a round trip"); }));
  std::cout << "a round trip of " << message.size() << " bytes: median " << 1e6 * median(seconds) << " us\n";
  close(peer);
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  return keel::bench::run(argc > 2 ? std::vector<int>{std::atoi(argv[1]), std::atoi(argv[2])} : std::vector<int>{});
}
