#pragma once
// A transport that makes the one below slower, to try a run as on a slower network.

#include <chrono>
#include <memory>

#include "keel/dist/comm/transport.h"

namespace keel {

// A rank's connection to the others, through which its messages leave one after the other. Each arrives `delay` after
// its last byte has left, so that it takes delay + bytes / bandwidth at least.
struct Link {
  std::chrono::microseconds delay{0};
  double bandwidth = 0;  // bytes a second; 0: as fast as it goes
  bool is_slow() const { return delay.count() > 0 || bandwidth > 0; }
};

// Takes over the inner transport. A message stays with its sender until its time has come, so a sender that does not
// poll sends it later. Transports that are split off use the same link; there is no shared memory.
std::unique_ptr<Transport> make_slow_transport(std::unique_ptr<Transport> inner, const Link& link);

}  // namespace keel
