#pragma once
// Ranks as processes that find each other by an address, without a launcher or MPI: each has a TCP connection to each
// other one. Only these calls make progress; there are no threads.
//
// Whoever can reach the ports may join or listen. So this is for networks that trust each other: the token keeps runs
// apart, not attackers out.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/comm/tcp_socket.h"
#include "keel/dist/comm/transport_communicator.h"

namespace keel {

struct TcpOptions {
  int rank = 0, size = 1;
  std::string address = {};  // HOST:PORT where rank 0 listens; the same on every rank
  // How long ranks wait for each other to come.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::string token = {};  // the same on every rank of a run; a process that brings another one is sent away
  // How long a connection may be silent before it says which rank it is. Silent ones go earlier where files run out.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
  // Told at once, in the caller's thread, of each process that rank 0 has sent away for a rank or size that cannot be.
  // With a token such a process is of this run, and ends it instead.
  std::function<void(const std::string&)> tell = {};
  // Rank 0's listener, where it listens at the address already.
  std::shared_ptr<const TcpListener> listener = {};
};

class TcpTransport : public Transport {
 public:
  // The node of each rank: those of one machine have one number, counted from 0 in the order of their first ranks.
  virtual std::vector<int> nodes() const = 0;
};

// Every rank calls it; blocks until all have come. The `n` transports join all ranks and share their connections. A
// failure told in one does not reach the others; that a rank is gone reaches all. Together they are for one thread at a
// time. Whoever destroys the last of them, and of those split off, waits up to a second for the other ranks to do so. A
// rank whose connection ends before that has failed: "rank 2 is gone".
std::vector<std::unique_ptr<TcpTransport>> make_tcp_transports(const TcpOptions& options, int n);
std::unique_ptr<TcpTransport> make_tcp_transport(const TcpOptions& options);

// A communicator over it. Without a node map in the options, it has that of the machines.
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<TcpTransport> transport, CommunicatorOptions options);
std::unique_ptr<Communicator> make_tcp_communicator(const TcpOptions& tcp, const CommunicatorOptions& options = {});

}  // namespace keel
