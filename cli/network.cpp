#include "network.h"

#include <fmt/core.h>

#include "keel/dist/lab/sizes.h"
#include "keel/runtime/error.h"

namespace keel::cli {

Option delay_option(LinkArguments* arguments) {
  return {"--delay",
          "US",
          {&arguments->delay_us, 0, 10'000'000},
          "Let every message take so long, as on a slower network."};
}

Option bandwidth_option(LinkArguments* arguments) {
  return {"--bandwidth", "SIZE", &arguments->bandwidth, "Let a rank send so many bytes a second at most: 100M."};
}

std::vector<Option> network_options(NetworkArguments* arguments) {
  return {delay_option(&arguments->link),
          bandwidth_option(&arguments->link),
          {"--outer-delay",
           "US",
           {&arguments->outer.delay_us, 0, 10'000'000},
           "Let every message between groups of sharding.group ranks (0: each rank is one) take so long; --delay is "
           "then of those inside a group."},
          {"--outer-bandwidth", "SIZE", &arguments->outer.bandwidth,
           "Let a rank send so many bytes a second at most to other groups; --bandwidth is then of its own."}};
}

Link link_of(const LinkArguments& arguments, std::string_view bandwidth) {
  Link link{.delay = std::chrono::microseconds(arguments.delay_us)};
  if (!arguments.bandwidth.empty()) {
    link.bandwidth = static_cast<double>(lab::parse_size(arguments.bandwidth));
    KEEL_CHECK(link.bandwidth > 0, bandwidth, " needs a size above 0");
  }
  return link;
}

Network network_of(const NetworkArguments& arguments, std::int64_t group) {
  Network network{.link = link_of(arguments.link), .outer = link_of(arguments.outer, "--outer-bandwidth")};
  if (network.outer.is_slow()) network.group = group > 0 ? static_cast<int>(group) : 1;
  return network;
}

std::string describe(const Link& link) {
  if (!link.is_slow()) return "";
  std::string text = "every message takes ";
  if (link.delay.count() > 0) text += fmt::format("{} us", link.delay.count());
  if (link.bandwidth > 0)
    text += fmt::format("{}its bytes at {} a second", link.delay.count() > 0 ? " and " : "",
                        lab::size_text(static_cast<std::int64_t>(link.bandwidth)));
  return text + ", at least";
}

std::string describe(const Network& network) {
  if (network.group == 0) return describe(network.link);
  std::string text = concat("groups of ", network.group, "; between them ", describe(network.outer));
  if (network.link.is_slow()) text += concat("; inside ", describe(network.link));
  return text;
}

}  // namespace keel::cli
