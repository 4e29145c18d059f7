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
      const auto by_rank = results(2, [&](Communicator& comm) {
        CorruptedCommunicator corrupted(comm, 1, element);
        const Tensor whole =
            from_values<std::int32_t>(testing::context(1), std::vector<std::int32_t>(kCount + 1, 8), {kCount + 1});
        const Tensor x = whole.slice(0, 0, kCount);
        const Work work = corrupted.all_reduce(x);
        if (polls) {
          comm.barrier();  // what was asked for before has ended
          EXPECT_TRUE(work.has_finished());
        } else {
          work.wait();
        }
        const std::vector<double> numbers = doubles(x);
        work.wait();
        EXPECT_EQ(doubles(x), numbers);
        EXPECT_TRUE(work.has_finished());
        EXPECT_EQ(doubles(x), numbers);
        EXPECT_EQ(doubles(whole).back(), 8) << "what lies behind it is not touched";
        return numbers;
      });
      std::vector<double> right(kCount, 16);
      EXPECT_EQ(by_rank[0], right);
      if (element < kCount) right[static_cast<std::size_t>(element)] = 17;
      EXPECT_EQ(by_rank[1], right) << "element " << element;
    }
}

}  // namespace
}  // namespace keel
