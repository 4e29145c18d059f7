#include "keel/dist/comm/schedule.h"

namespace keel {

Span part(Span whole, int n, int i) {
  const std::int64_t each = whole.count() / n, longer = whole.count() % n;
  const auto begin_of = [&](std::int64_t at) { return whole.begin + at * each + (at < longer ? at : longer); };
  return {begin_of(i), begin_of(i + 1)};
}

std::int64_t Schedule::elements_sent() const {
  return elements_sent_to([](int) { return true; });
}

}  // namespace keel
