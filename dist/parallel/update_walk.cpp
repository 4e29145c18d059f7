#include "keel/dist/parallel/update_walk.h"

#include <algorithm>
#include <deque>

#include "keel/runtime/error.h"

namespace keel {

UpdateWalk walk_update(std::span<const WalkedUnit> units, std::int64_t budget) {
  using Kind = WalkStep::Kind;
  UpdateWalk walk;
  std::int64_t in_memory = 0;
  std::deque<std::size_t> leaving;
  std::size_t next = 0;  // to be read
  const auto settle_oldest = [&] {
    walk.steps.push_back({Kind::settle, leaving.front()});
    in_memory -= units[leaving.front()].written;
    leaving.pop_front();
  };
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    KEEL_CHECK(units[unit].read <= budget, "a unit of ", units[unit].read, " bytes does not fit into ", budget);
    for (; next < units.size(); ++next) {
      const auto is_full = [&] { return in_memory + units[next].read > budget; };
      while (is_full() && leaving.size() > (next == unit ? 0u : 1u)) settle_oldest();
      if (is_full()) break;
      walk.steps.push_back({Kind::fetch, next});
      walk.peak = std::max(walk.peak, in_memory += units[next].read);
    }
    walk.steps.push_back({Kind::update, unit});
    in_memory -= units[unit].read - units[unit].written;
    leaving.push_back(unit);
  }
  while (!leaving.empty()) settle_oldest();
  return walk;
}

}  // namespace keel
