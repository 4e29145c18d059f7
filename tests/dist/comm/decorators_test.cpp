// Communicators that disturb another one.

#include "keel/dist/comm/decorators.h"

#include <gtest/gtest.h>

#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// The lowest bit of one element, on one rank, however it is waited for.
TEST(CorruptedCommunicator, ChangesOneElementOfOneRankOnce) {
  constexpr std::int64_t kCount = 5;
  for (const bool polls : {false, true})
    for (const std::int64_t element : {0, 3, 4, 5}) {
      const auto numbers = results(2, [&](Communicator& comm) {
        CorruptedCommunicator corrupted(comm, 1, element);
        const Tensor x = from_values<std::int32_t>(testing::context(1), std::vector<std::int32_t>(kCount, 8), {kCount});
        const Work work = corrupted.all_reduce(x);
        while (polls && !work.has_finished()) comm.poll();
        work.wait();
        work.wait();
        return doubles(x);
      });
      std::vector<double> right(kCount, 16);
      EXPECT_EQ(numbers[0], right);
      if (element < kCount) right[static_cast<std::size_t>(element)] = 17;
      EXPECT_EQ(numbers[1], right) << "element " << element;
    }
}

}  // namespace
}  // namespace keel
