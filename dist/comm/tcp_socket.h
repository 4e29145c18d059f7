#pragma once
// TCP sockets that never block.

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "keel/runtime/language.h"

struct iovec;

namespace keel {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : file_(other.file_) { other.file_ = -1; }
  Socket& operator=(Socket&& other) noexcept;

  int file() const { return file_; }
  bool is_open() const { return file_ >= 0; }
  void close();

  // How many bytes went at once; -1 where the other end is closed or lost.
  std::ptrdiff_t send_some(const void* data, std::size_t bytes) const;
  std::ptrdiff_t send_some(std::span<iovec> parts) const;
  // How many bytes were there; -1 at the end, whether in order or not.
  std::ptrdiff_t receive_some(void* data, std::size_t bytes) const;

 private:
  int file_ = -1;
};

// An address as people write it: "node7:4000", "10.0.0.1:4000", "[::1]:4000".
struct TcpAddress {
  std::string host;
  int port = 0;

  static TcpAddress parse(const std::string& text);
  bool is_loopback() const;  // by its text: "localhost" or a number
};
std::string to_string(const TcpAddress& address);

// Waits in a port; other machines reach it unless the address is a loopback.
class TcpListener {
 public:
  // Port 0 takes a free one. Throws an Error of kind io where it cannot be had.
  explicit TcpListener(const TcpAddress& address);
  TcpAddress address() const { return address_; }  // with the port that it has
  int file() const { return socket_.file(); }
  struct Accepted {
    Socket socket;             // not open where nobody waits
    bool lacks_files = false;  // somebody waits, but this process or the system can open no more files
  };
  Accepted accept() const;

 private:
  TcpAddress address_;
  Socket socket_;
};

// Where the other end of a connection is.
TcpAddress address_of_peer(const Socket& socket);

// Tries until `deadline`; `what` is connected to, for the error: "rank 0". Throws an Error of kind peer when nobody
// answers, of kind input when there is no such host.
Socket connect_to(const TcpAddress& address, const std::string& what, std::chrono::steady_clock::time_point deadline);

}  // namespace keel
