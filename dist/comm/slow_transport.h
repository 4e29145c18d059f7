#pragma once
// A transport that makes the one below slower, to try a run as on a slower network.

#include <chrono>
#include <functional>
#include <memory>

#include "keel/dist/comm/link.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// What tells the time.
using LinkClock = std::function<std::chrono::steady_clock::time_point()>;

// Takes over the inner transport, whose ranks are those of the network. A message stays with its sender until its time
// has come, so a sender that does not poll sends it later. Transports that are split off use the same links, in which
// ranks keep their places; there is no shared memory.
std::unique_ptr<Transport> make_slow_transport(std::unique_ptr<Transport> inner, const Network& network,
                                               const LinkClock& clock = std::chrono::steady_clock::now);

}  // namespace keel
