#pragma once
// How ranks find each other: they come to rank 0, which tells each where the others listen; then all connect to all.

#include <cstdint>
#include <vector>

#include "keel/dist/comm/tcp_transport.h"

namespace keel {

struct TcpPeers {
  std::vector<Socket> sockets;       // by rank; none for the rank itself
  std::vector<std::uint64_t> hosts;  // by rank: equal for ranks of one machine
};

// Throws an Error of kind input where ranks of one token contradict each other or a process may open too few files, of
// kind peer where some ranks do not come in time. Without a token, whoever contradicts is refused as a stranger.
TcpPeers meet(const TcpOptions& options);

}  // namespace keel
