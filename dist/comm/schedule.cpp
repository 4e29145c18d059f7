#include "keel/dist/comm/schedule.h"

#include <algorithm>

namespace keel {

Span part(Span whole, int n, int i) {
  const std::int64_t each = whole.count() / n, longer = whole.count() % n;
  const auto begin_of = [&](std::int64_t at) { return whole.begin + at * each + (at < longer ? at : longer); };
  return {begin_of(i), begin_of(i + 1)};
}

Cut::Cut(std::int64_t count, int ranks, std::span<const std::int64_t> counts) : Cut(count, ranks) {
  if (counts.empty()) return;
  begins_.reserve(counts.size() + 1);
  begins_.push_back(0);
  for (const std::int64_t each : counts) begins_.push_back(begins_.back() + each);
  count_ = begins_.back();
}

std::int64_t Cut::longest() const {
  std::int64_t longest = 0;
  for (int r = 0; r < ranks_; ++r) longest = std::max(longest, of(r).count());
  return longest;
}

std::int64_t Schedule::elements_sent() const {
  return elements_sent_to([](int) { return true; });
}

}  // namespace keel
