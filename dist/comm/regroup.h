#pragma once
// What Communicator::regroup() is asked for.

#include <string>
#include <vector>

#include "keel/dist/comm/link.h"

namespace keel {

// How the same ranks shall do their collectives.
struct Regroup {
  std::string algorithm = "direct";  // of keel/dist/comm/algorithms.h
  bool shared_memory = true;
  std::vector<int> nodes = {};  // of each rank; empty: as it is
  Network network = {};         // slower than what there is
};

}  // namespace keel
