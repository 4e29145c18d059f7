// What ranks tell each other of a step: sums over ranks and their virtual ranks, and what callbacks have agreed on.

#include "keel/trainer/step_note.h"

#include <gtest/gtest.h>

#include <vector>

#include "keel/dist/comm/run_ranks.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using NoteSums = std::vector<double>;

TEST(StepNotes, AddTheSumsOfRanksAndOfTheirVirtualRanksInOrder) {
  // 1 is lost beside 1e16 where it is added alone.
  for (const auto& [mine, virtual_ranks, n, sums] :
       std::vector<std::tuple<NoteSums, int, int, NoteSums>>{{{3, 5}, 1, 1, {3, 5}},
                                                             {{3, 5}, 1, 3, {9, 15}},
                                                             {{1e16, 5, 1, 7}, 2, 1, {1e16, 12}},
                                                             {{1, 5, 1, 7}, 2, 2, {4, 24}},
                                                             {{1, 2, 3, 4, 5, 6}, 3, 2, {18, 24}},
                                                             {{1, 2, 3, 4, 5, 6}, 2, 1, {5, 7, 9}},
                                                             {{}, 1, 2, {}}})
    run_ranks(n, [&, own = mine, each = virtual_ranks, expected = sums](Communicator& ranks) {
      const StepNote note{.units = 1.0 + ranks.rank(), .flops = 10};
      const StepNotes told = GatheringOfNotes(ranks, note, own, each).wait();
      EXPECT_EQ(told.sums, expected);
      ASSERT_EQ(static_cast<int>(told.notes.size()), ranks.size());
      for (int rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(told.notes[static_cast<std::size_t>(rank)].units, 1 + rank);
        EXPECT_EQ(told.notes[static_cast<std::size_t>(rank)].flops, 10);
      }
      EXPECT_EQ(GatheringOfSums(ranks, own, each).wait(), expected);
    });
}

TEST(StepNotes, HaveTheWishesOfAnyRankAndTheFactorOfAll) {
  const auto agreed = [](std::vector<LoopWishes> wishes) { return agreed_wishes(wishes); };
  for (std::size_t rank = 0; rank < 3; ++rank) {
    std::vector<LoopWishes> wishes(3);
    EXPECT_FALSE(agreed(wishes).stop || agreed(wishes).evaluate || agreed(wishes).save || agreed(wishes).failed);
    EXPECT_EQ(agreed(wishes).rate, LoopWishes::kNone);
    wishes[rank].stop = true;
    EXPECT_TRUE(agreed(wishes).stop && !agreed(wishes).evaluate && !agreed(wishes).save && !agreed(wishes).failed);
    wishes[rank] = {.evaluate = true};
    EXPECT_TRUE(!agreed(wishes).stop && agreed(wishes).evaluate && !agreed(wishes).save && !agreed(wishes).failed);
    wishes[rank] = {.save = true};
    EXPECT_TRUE(!agreed(wishes).stop && !agreed(wishes).evaluate && agreed(wishes).save && !agreed(wishes).failed);
    wishes[rank] = {.failed = true};
    EXPECT_TRUE(!agreed(wishes).stop && !agreed(wishes).evaluate && !agreed(wishes).save && agreed(wishes).failed);
    if (rank == 0) continue;
    wishes = std::vector<LoopWishes>(3, {.rate = 0.5});
    EXPECT_EQ(agreed(wishes).rate, 0.5);
    wishes[rank].rate = 0.25;
    EXPECT_EQ(testing::error_of([&] { agreed(wishes); }),
              concat("callbacks of rank ", rank,
                     " ask for 0.25 times the learning rate, and those of rank 0 for 0.5 "
                     "times (-1: they do not ask); they must ask for the same in the same event"));
  }
}

}  // namespace
}  // namespace keel
