// What passes that ranks share agree on.

#include "keel/trainer/pass_group.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"

namespace keel {
namespace {

TEST(PassGroup, HearsWhatAnyOfItsRanksSays) {
  for (const int n : {1, 2, 3})
    for (int speaker = -1; speaker < n; ++speaker)
      run_ranks(n, [&](Communicator& ranks) {
        PassGroup group(ranks);
        EXPECT_EQ(group.any(ranks.rank() == speaker), speaker >= 0) << speaker << " of " << n;
      });
}

}  // namespace
}  // namespace keel
