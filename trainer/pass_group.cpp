#include "keel/trainer/pass_group.h"

#include <algorithm>

#include "keel/dist/comm/exchange.h"

namespace keel {

bool PassGroup::any(bool mine) {
  if (ranks_.size() == 1) return mine;
  const std::vector<int> all = gather_values(ranks_, mine ? 1 : 0);
  return std::ranges::find(all, 1) != all.end();
}

}  // namespace keel
