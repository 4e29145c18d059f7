#pragma once
// A communicator made of messages: it runs the schedules of the algorithms over any transport.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/transport.h"

namespace keel {

struct CommunicatorOptions {
  std::string algorithm = "direct";  // of all_reduce, reduce_scatter and all_gather; see keel/dist/comm/algorithms.h
  std::vector<int> nodes = {};       // of each rank; empty: all share one
  // How long a rank waits for the others before it gives up.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Every rank of the transport's group calls it with the same options. Tensors must be the processor's.
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Transport> transport,
                                                const CommunicatorOptions& options = {});

}  // namespace keel
