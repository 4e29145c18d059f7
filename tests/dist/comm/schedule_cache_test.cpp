// Which schedules a rank keeps.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/dist/comm/collective_schedule.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Schedules that are held keep their addresses from others.
TEST(ScheduleCache, KeepsTheLatestAndForgetsTheOldest) {
  constexpr std::int64_t kAsked = 300, kLatest = 50;
  ScheduleCache cache;
  const Tensor whole = empty(testing::context(1), {kAsked});
  std::vector<std::shared_ptr<const Schedule>> found;
  const auto find = [&](std::int64_t count) {
    const Tensor x = whole.slice(0, 0, count);
    return cache.find(find_algorithm("direct"), {.kind = CollectiveKind::all_reduce, .input = x, .output = x}, 0,
                      {0, 0});
  };
  for (std::int64_t count = 0; count < kAsked; ++count) {
    found.push_back(find(count));
    for (std::int64_t each = std::max<std::int64_t>(0, count + 1 - kLatest); each <= count; ++each)
      EXPECT_EQ(find(each), found[static_cast<std::size_t>(each)]) << count;
  }
  EXPECT_NE(find(0), found[0]) << "all are kept";
}

}  // namespace
}  // namespace keel
