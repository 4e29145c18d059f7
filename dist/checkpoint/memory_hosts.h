#pragma once
// Which ranks see the same memory of a host, and who keeps the second copy of each rank's files.

#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

struct MemoryHosts {
  std::vector<int> of;             // the host of each rank; hosts count from 0 in the order of their first ranks
  std::vector<int> partner;        // of each rank: the rank of another host that keeps its second copy; -1: none
  std::vector<std::string> names;  // of hosts, for messages

  int count() const { return static_cast<int>(names.size()); }
  // Ascending.
  std::vector<int> ranks_of(int host) const;
  // Whether no rank before this one is on its host.
  bool is_first(int rank) const;
};

// `node` of each rank, as the communicator has it, and `place`: which memory the rank sees, by a text that is unique on
// its node. Ranks with both in common are on one host. The partners of a host's ranks are those of the next host in
// order, one after the other; where hosts share nodes, of the next one on another node, if any.
MemoryHosts pair_hosts(std::span<const int> node, std::span<const std::string> place,
                       std::span<const std::string> name);

// By the folder in which copies lie: ranks of a node for which it is the same folder are on one host. Every rank calls
// it.
MemoryHosts meet_in_memory(Communicator& ranks, const std::string& root);

}  // namespace keel
