#pragma once
// The options --delay and --bandwidth of several commands, which make the network slower than it is.

#include <cstdint>
#include <string>

#include "command.h"
#include "keel/dist/comm/link.h"

namespace keel::cli {

// As typed.
struct NetworkArguments {
  std::int64_t delay_us = 0;
  std::string bandwidth;
};
Option delay_option(NetworkArguments* arguments);
Option bandwidth_option(NetworkArguments* arguments);

// An Error where the bandwidth is no size above 0.
Link link_of(const NetworkArguments& arguments);

// "every message takes 200 us and its bytes at 100M a second, at least"; empty where nothing is slower than it is.
std::string describe(const Link& link);

}  // namespace keel::cli
