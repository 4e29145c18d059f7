#pragma once
// Ranks that are processes and find each other by an address in the environment, started by hand.

#include <gtest/gtest.h>
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

class AtAnAddress : public ::testing::Test {
 protected:
  Processes start(int n, const std::string& arguments) const {
    return start(arguments, std::vector<std::string>(static_cast<std::size_t>(n), sandbox / ""));
  }
  // A rank in each of the folders.
  Processes start(const std::string& arguments, const std::vector<std::string>& folders) const {
    Processes processes;
    for (const std::string& folder : folders)
      processes.push_back(
          std::make_unique<RunningProgram>(arguments, folder,
                                           concat("export KEEL_RANK=", processes.size(), " KEEL_SIZE=", folders.size(),
                                                  " KEEL_ADDRESS=127.0.0.1:", port.number())));
    return processes;
  }
  static std::vector<Outcome> wait(const Processes& processes) {
    std::vector<Outcome> outcomes;
    for (const auto& process : processes) outcomes.push_back(process->wait());
    return outcomes;
  }

  Sandbox sandbox;
  FreePort port;
};

}  // namespace keel::testing
