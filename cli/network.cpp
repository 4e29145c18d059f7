#include "network.h"

#include <fmt/core.h>

#include "keel/dist/lab/sizes.h"
#include "keel/runtime/error.h"

namespace keel::cli {

Option delay_option(NetworkArguments* arguments) {
  return {"--delay",
          "US",
          {&arguments->delay_us, 0, 10'000'000},
          "Let every message take so long, as on a slower network."};
}

Option bandwidth_option(NetworkArguments* arguments) {
  return {"--bandwidth", "SIZE", &arguments->bandwidth, "Let a rank send so many bytes a second at most: 100M."};
}

Link link_of(const NetworkArguments& arguments) {
  Link link{.delay = std::chrono::microseconds(arguments.delay_us)};
  if (!arguments.bandwidth.empty()) {
    link.bandwidth = static_cast<double>(lab::parse_size(arguments.bandwidth));
    KEEL_CHECK(link.bandwidth > 0, "--bandwidth needs a size above 0");
  }
  return link;
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

}  // namespace keel::cli
