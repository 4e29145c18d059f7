#pragma once
// A server of HTTP/1.1 inside a test: a thread that keeps requests and answers as the test says.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel::testing {

struct HttpRequest {
  std::string method, target, headers, body;
};

class HttpServer {
 public:
  using Answer = std::function<std::pair<int, std::string>(const HttpRequest&)>;  // status and body

  // On 127.0.0.1, at a port that is free; `port`: at this one.
  explicit HttpServer(Answer answer, int port = 0) : answer_(std::move(answer)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    socklen_t size = sizeof address;
    KEEL_CHECK(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(socket_, 8) == 0,
               "no port for the test's server");
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    is_over_ = true;
    thread_.join();
    ::close(socket_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string uri() const { return concat("http://127.0.0.1:", port_); }
  std::vector<HttpRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!is_over_) {
      pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      const int peer = ::accept(socket_, nullptr, nullptr);
      if (peer < 0) continue;
      answer(peer);
      ::close(peer);
    }
  }

  // One request a connection.
  void answer(int peer) {
    std::string text;
    std::size_t head = std::string::npos, length = 0;
    while (head == std::string::npos || text.size() < head + 4 + length) {
      char piece[4096];
      const ssize_t count = ::recv(peer, piece, sizeof piece, 0);
      if (count <= 0) return;
      text.append(piece, static_cast<std::size_t>(count));
      if (head != std::string::npos || (head = text.find("\r\n\r\n")) == std::string::npos) continue;
      constexpr std::string_view kLength = "\r\nContent-Length: ";
      if (const std::size_t at = text.find(kLength); at < head) length = std::stoul(text.substr(at + kLength.size()));
    }
    const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
    HttpRequest request{text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(0, head),
                        text.substr(head + 4)};
    const auto [status, body] = answer_(request);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
    }
    const std::string reply =
        concat("HTTP/1.1 ", status, " Said\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
    (void)::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
  }

  Answer answer_;
  int socket_ = -1, port_ = 0;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::thread thread_;
};

}  // namespace keel::testing
