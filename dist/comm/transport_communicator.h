#pragma once
// A communicator made of messages: it runs the schedules of the algorithms over any transport.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/transport.h"

namespace keel {

struct CommunicatorOptions {
  std::string algorithm = "direct";  // of all_reduce, reduce_scatter and all_gather; see keel/dist/comm/algorithms.h
  std::vector<int> nodes = {};       // of each rank; empty: all share one
  // Whether collectives of ranks that have memory in common go through it where the algorithm is "direct", with the
  // same results; otherwise all go by messages.
  bool shared_memory = true;
  // How long a rank waits for the others before it gives up.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // For a program that may be ended while it waits. Once this rank has waited a moment and is_worried(), `tell` gets a
  // line on what it waits for, at most one for each collective, in the thread that waits. The wait goes on.
  std::function<bool()> is_worried = {};
  std::function<void(int rank, const std::string& line)> tell = {};
};

// Every rank of the transport's group calls it with the same options. Tensors must lie in the processor's memory. A
// communicator and those split off from it are for one thread at a time. A wait in one of them advances the collectives
// of all, so ranks may wait for those of different groups in different orders.
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Transport> transport,
                                                const CommunicatorOptions& options = {});

// Makes a wait in one of two communicators advance both, though they were made apart; so for all that were or will be
// split off from them.
void advance_together(Communicator& one, Communicator& other);

}  // namespace keel
