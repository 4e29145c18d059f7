#pragma once
// A transport that makes the one below slower, to try a run as on a slower network.

#include <memory>

#include "keel/dist/comm/link.h"
#include "keel/dist/comm/transport.h"

namespace keel {

// Takes over the inner transport. A message stays with its sender until its time has come, so a sender that does not
// poll sends it later. Transports that are split off use the same link; there is no shared memory.
std::unique_ptr<Transport> make_slow_transport(std::unique_ptr<Transport> inner, const Link& link);

}  // namespace keel
