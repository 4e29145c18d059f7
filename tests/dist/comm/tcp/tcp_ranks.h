#pragma once
// Ranks that TCP connects, as threads that share nothing else.

#include <functional>

#include "keel/dist/comm/tcp_transport.h"

namespace keel::testing {

// The options of each rank: a free port of this machine, where rank 0 listens already.
std::vector<TcpOptions> tcp_options(int n);

// Calls f with each of them in a thread of its own; what they threw, by place.
std::vector<std::exception_ptr> in_threads(const std::vector<TcpOptions>& options,
                                           const std::function<void(const TcpOptions&)>& f);

// What their exceptions said; empty for those without one.
std::vector<std::string> messages(const std::vector<TcpOptions>& options,
                                  const std::function<void(const TcpOptions&)>& f);

// Meets the others, and ends once all of them have come.
void join(const TcpOptions& options);

// Calls f with the transport of each of n ranks; an exception ends the test.
void on_transports(int n, const std::function<void(std::unique_ptr<TcpTransport>)>& f);

}  // namespace keel::testing
