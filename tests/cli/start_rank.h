#pragma once
// One rank that is a process and finds the others by an address in the environment, started by hand.

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cli/sandbox.h"

namespace keel::testing {

using Processes = std::vector<std::unique_ptr<RunningProgram>>;

// A port that nobody else is given as long as this exists, though rank 0 may listen there.
class FreePort {
 public:
  FreePort() : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    KEEL_CHECK(::bind(file_, reinterpret_cast<sockaddr*>(&address), length) == 0, "there is no free port");
    ::getsockname(file_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin_port);
  }
  ~FreePort() { ::close(file_); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;
  int number() const { return number_; }

 private:
  int file_, number_ = 0;
};

// One of n ranks that rank 0 awaits at the port.
inline std::unique_ptr<RunningProgram> start_rank(const FreePort& port, std::size_t rank, std::size_t n,
                                                  const std::string& arguments, const std::string& folder,
                                                  const std::string& before = "true") {
  return std::make_unique<RunningProgram>(
      arguments, folder,
      concat(before, " && export KEEL_RANK=", rank, " KEEL_SIZE=", n, " KEEL_ADDRESS=127.0.0.1:", port.number()));
}

}  // namespace keel::testing
