#pragma once
// Options of several commands that make the network slower than it is: --delay, --bandwidth and, where there are groups
// of ranks, --outer-delay and --outer-bandwidth.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "keel/dist/comm/link.h"

namespace keel::cli {

// As typed.
struct LinkArguments {
  std::int64_t delay_us = 0;
  std::string bandwidth;
};
struct NetworkArguments {
  LinkArguments link, outer;
};
Option delay_option(LinkArguments* arguments);
Option bandwidth_option(LinkArguments* arguments);
// Both, and those of links between groups.
std::vector<Option> network_options(NetworkArguments* arguments);

// An Error where the bandwidth, of the option of this name, is no size above 0.
Link link_of(const LinkArguments& arguments, std::string_view bandwidth = "--bandwidth");
// `group`: sharding.group of the configuration; 0: each rank is a group.
Network network_of(const NetworkArguments& arguments, std::int64_t group);

// "every message takes 200 us and its bytes at 100M a second, at least"; empty where nothing is slower than it is.
std::string describe(const Link& link);
// The same, and what lies between groups.
std::string describe(const Network& network);

}  // namespace keel::cli
