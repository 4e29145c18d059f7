#include "keel/dist/comm/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTimeBetweenTries = std::chrono::milliseconds(20);
// A machine that lost its power closes no connection: after that many seconds of silence it is asked, so often.
constexpr int kSecondsOfSilence = 20, kSecondsBetweenProbes = 5, kProbes = 4;

using Resolved = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Resolved resolve(const TcpAddress& address) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (code != 0) throw Error(concat("cannot find the host of ", to_string(address), ": ", ::gai_strerror(code)));
  return {found, &::freeaddrinfo};
}

void set(int file, int level, int option, int value) { ::setsockopt(file, level, option, &value, sizeof(value)); }

void tune(int file) {
  set(file, IPPROTO_TCP, TCP_NODELAY, 1);
  set(file, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(file, IPPROTO_TCP, TCP_KEEPIDLE, kSecondsOfSilence);
  set(file, IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetweenProbes);
  set(file, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// A call on a socket that failed because nothing is there, or because the system has no room for now.
bool may_be_tried_again(int error) { return error == EAGAIN || error == EINTR || error == ENOBUFS; }

Socket make(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000));
}

// As happens on one machine when the port that nobody listens at is the one that the system chose for this end.
bool is_connected_to_itself(const Socket& socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  return ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(socket.file(), reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

// One try; not open, with errno, where nobody answers.
Socket try_to_connect(const addrinfo& to, Clock::time_point deadline) {
  Socket socket = make(to.ai_family);
  if (!socket.is_open()) return socket;
  if (::connect(socket.file(), to.ai_addr, to.ai_addrlen) != 0) {
    int error = errno;
    while (error == EINPROGRESS || error == EINTR) {
      pollfd wait{socket.file(), POLLOUT, 0};
      const int ready = ::poll(&wait, 1, milliseconds_until(deadline));
      if (ready == 0 && Clock::now() >= deadline) error = ETIMEDOUT;
      if (ready <= 0) continue;
      socklen_t length = sizeof(error);
      ::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    errno = error;
    if (error != 0) return {};
  }
  if (is_connected_to_itself(socket)) {
    errno = ECONNREFUSED;
    return {};
  }
  tune(socket.file());
  return socket;
}

TcpAddress address_from(const sockaddr_storage& storage, socklen_t length) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  TcpAddress address{host, std::atoi(port)};
  // What came to a port for both families.
  if (address.host.starts_with("::ffff:")) address.host.erase(0, std::strlen("::ffff:"));
  return address;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

void Socket::close() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

std::ptrdiff_t Socket::send_some(const void* data, std::size_t bytes) const {
  iovec part{const_cast<void*>(data), bytes};
  return send_some(std::span(&part, 1));
}

std::ptrdiff_t Socket::send_some(std::span<iovec> parts) const {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(file_, &message, MSG_NOSIGNAL);
  return sent < 0 && may_be_tried_again(errno) ? 0 : sent;
}

std::ptrdiff_t Socket::receive_some(void* data, std::size_t bytes) const {
  const ssize_t received = ::recv(file_, data, bytes, 0);
  if (received > 0) return received;
  return received < 0 && may_be_tried_again(errno) ? 0 : -1;
}

TcpAddress TcpAddress::parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  TcpAddress address;
  bool is_right = colon != std::string::npos;
  if (is_right) {
    address.host = text.substr(0, colon);
    const bool has_brackets = address.host.starts_with('[') && address.host.ends_with(']');
    if (has_brackets) address.host = address.host.substr(1, address.host.size() - 2);
    const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), address.port);
    is_right = error == std::errc{} && end == text.data() + text.size() && address.port >= 0 &&
               address.port <= 65'535 && !address.host.empty() &&
               (has_brackets || address.host.find(':') == std::string::npos);
  }
  KEEL_CHECK(is_right, "an address is written HOST:PORT, such as node7:4000 or [::1]:4000, got '", text, "'");
  return address;
}

bool TcpAddress::is_loopback() const {
  in_addr four{};
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && ::inet_pton(AF_INET, host.c_str(), &four) == 1);
}

std::string to_string(const TcpAddress& address) {
  const bool is_six = address.host.find(':') != std::string::npos;
  return concat(is_six ? "[" : "", address.host, is_six ? "]:" : ":", address.port);
}

TcpListener::TcpListener(const TcpAddress& address) : address_(address) {
  // A name may mean another address here than elsewhere, so only a loopback is bound to itself.
  std::vector<TcpAddress> tries = {address};
  if (!address.is_loopback()) tries = {{"::", address.port}, {"0.0.0.0", address.port}};
  int error = 0;
  for (const TcpAddress& at : tries) {
    const Resolved found = resolve(at);
    Socket socket = make(found->ai_family);
    if (socket.is_open()) {
      set(socket.file(), SOL_SOCKET, SO_REUSEADDR, 1);
      if (found->ai_family == AF_INET6) set(socket.file(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (::bind(socket.file(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(socket.file(), SOMAXCONN) == 0) {
        sockaddr_storage own{};
        socklen_t length = sizeof(own);
        ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&own), &length);
        address_.port = address_from(own, length).port;
        socket_ = std::move(socket);
        return;
      }
    }
    error = errno;
    if (error == EADDRINUSE) break;
  }
  throw Error(concat("cannot listen at ", to_string(address), ": ", std::strerror(error)), ErrorKind::io);
}

TcpListener::Accepted TcpListener::accept() const {
  for (;;) {
    Socket socket(::accept4(socket_.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      tune(socket.file());
      return {std::move(socket)};
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;  // who has gone again is nobody
    return {{}, errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM};
  }
}

TcpAddress address_of_peer(const Socket& socket) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  if (::getpeername(socket.file(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return {};
  return address_from(peer, length);
}

Socket connect_to(const TcpAddress& address, const std::string& what, Clock::time_point deadline) {
  const Resolved found = resolve(address);
  for (;;) {
    int error = 0;
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      Socket socket = try_to_connect(*to, deadline);
      if (socket.is_open()) return socket;
      error = errno;
    }
    if (Clock::now() >= deadline)
      throw Error(concat(what, " does not answer at ", to_string(address), ": ", std::strerror(error)),
                  ErrorKind::peer);
    std::this_thread::sleep_for(kTimeBetweenTries);
  }
}

}  // namespace keel
