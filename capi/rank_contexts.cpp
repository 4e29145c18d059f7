// Ranks that a host starts without MPI: keel_team_..., keel_context_create_thread, keel_context_create_tcp

#include <chrono>
#include <cmath>

#include "keel/capi/handles.h"
#include "keel/capi/site.h"
#include "keel/capi/team.h"
#include "keel/dist/comm/tcp_transport.h"
#include "keel/dist/comm/transport_communicator.h"

namespace keel::capi {
namespace {

constexpr int kMostRanks = 1 << 16;

void check_place(int rank, int size) {
  KEEL_CHECK(size >= 1 && size <= kMostRanks, "size is ", size, ", but must be in [1, ", kMostRanks, "]");
  KEEL_CHECK(rank >= 0 && rank < size, "rank is ", rank, ", but must be in [0, ", size, ")");
}

std::chrono::milliseconds patience_of(double timeout) {
  constexpr double kLongest = 1e9;
  KEEL_CHECK(timeout > 0 && timeout <= kLongest, "timeout is ", timeout, "; it is seconds, above 0 and at most 1e9");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(timeout * 1000)));
}

}  // namespace

Team::Team(int size, std::chrono::milliseconds timeout)
    : hub_(size), timeout_(timeout), is_taken_(static_cast<std::size_t>(size), false) {}

std::unique_ptr<Communicator> Team::join(int rank) {
  check_place(rank, hub_.size());
  {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(rank);
    KEEL_CHECK(!is_taken_[at], "rank ", rank, " of the team has a context already; each rank has one, in a thread of ",
               "its own");
    is_taken_[at] = true;
  }
  CommunicatorOptions options;
  options.timeout = timeout_;
  return make_communicator(hub_.connect(rank), options);
}

}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_team_create(int size, double timeout, keel_team** team) {
  return call("keel_team_create", [&] {
    create(team, "team", [&] {
      check_place(0, size);
      return std::make_shared<Team>(size, patience_of(timeout));
    });
  });
}

keel_status keel_team_destroy(keel_team** team) {
  return call("keel_team_destroy", [&] { destroy(team, "team"); });
}

keel_status keel_context_create_thread(keel_team* team, int rank, const keel_settings* settings,
                                       keel_context** context) {
  return call("keel_context_create_thread", [&] {
    create(context, "context", [&] {
      const auto object = object_of(team);
      const capi::Settings chosen = settings_of(settings);
      return std::make_shared<Site>(chosen, object->join(rank));
    });
  });
}

keel_status keel_context_create_tcp(int rank, int size, const char* address, const char* token, double timeout,
                                    const keel_settings* settings, keel_context** context) {
  return call("keel_context_create_tcp", [&] {
    create(context, "context", [&] {
      check_place(rank, size);
      TcpOptions tcp{
          .rank = rank, .size = size, .address = &given(address, "address"), .timeout = patience_of(timeout)};
      TcpAddress::parse(tcp.address);
      if (token != nullptr) tcp.token = token;
      CommunicatorOptions options;
      options.timeout = tcp.timeout;
      const capi::Settings chosen = settings_of(settings);
      return std::make_shared<Site>(chosen, make_tcp_communicator(tcp, options));
    });
  });
}
}
