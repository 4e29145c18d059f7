// How tensors are cut among ranks, and how many elements a collective is of.

#include "keel/dist/comm/parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(Cut, HasPartsOneBehindTheOtherAndKnowsTheLongest) {
  const std::vector<std::int64_t> cases[] = {{0}, {0, 0, 0}, {1, 0}, {0, 1}, {3, 9, 4}, {9, 3, 4}, {3, 4, 9}};
  for (const std::vector<std::int64_t>& counts : cases) {
    const Cut cut(99, static_cast<int>(counts.size()), counts);
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      EXPECT_EQ(cut.of(static_cast<int>(r)), (Span{begin, begin + counts[r]}));
      begin += counts[r];
    }
    EXPECT_EQ(cut.count(), begin);
    EXPECT_EQ(cut.longest(), *std::max_element(counts.begin(), counts.end()));
  }
}

TEST(Cut, OfShardsHasLengthsThatDifferByOneAtMost) {
  for (int ranks = 1; ranks < 6; ++ranks)
    for (std::int64_t count = 0; count < 14; ++count) {
      const Cut cut(count, ranks);
      std::int64_t begin = 0;
      for (int r = 0; r < ranks; ++r) {
        const std::int64_t length = count / ranks + (r < count % ranks ? 1 : 0);
        EXPECT_EQ(cut.of(r), (Span{begin, begin + length}));
        EXPECT_EQ(part({10, 10 + count}, ranks, r), (Span{10 + begin, 10 + begin + length}));
        begin += length;
      }
      EXPECT_EQ(cut.count(), count);
      EXPECT_EQ(cut.longest(), (count + ranks - 1) / ranks);
    }
}

TEST(Collective, HasTheElementsOfItsWholeTensor) {
  const Tensor three = empty(testing::context(1), {3}), seven = empty(testing::context(1), {7});
  using enum CollectiveKind;
  for (const CollectiveKind kind : {all_reduce, reduce_scatter, all_to_all, reduce, send})
    EXPECT_EQ((Collective{.kind = kind, .input = seven, .output = three}.count()), 7) << name_of(kind);
  for (const CollectiveKind kind : {all_gather, broadcast, receive})
    EXPECT_EQ((Collective{.kind = kind, .input = three, .output = seven}.count()), 7) << name_of(kind);
  EXPECT_EQ((Collective{.kind = gather, .input = three, .counts = {3, 0, 5}}.count()), 8);
  EXPECT_EQ((Collective{.kind = barrier}.count()), 0);
  for (const CollectiveKind kind : {gather, broadcast})
    EXPECT_EQ((Collective{.kind = kind, .input = three}.count()), 0);
}

TEST(Parts, AreNoneOfRanksThatGiveOrGetNothing) {
  const Tensor x = empty(testing::context(1), {3});
  for (int rank = 0; rank < 3; ++rank)
    for (int from = 0; from < 3; ++from) {
      const Parts gathers({.kind = CollectiveKind::gather, .input = x, .output = x, .peer = 1, .counts = {1, 1, 1}},
                          rank, 3);
      EXPECT_EQ(gathers.gotten(from), (rank == 1 ? Span{from, from + 1} : Span{})) << rank << ' ' << from;
      const Parts scatters({.kind = CollectiveKind::scatter, .input = x, .output = x, .peer = 1, .counts = {1, 1, 1}},
                           rank, 3);
      EXPECT_EQ(scatters.gotten(from), (from == 1 ? Span{0, 1} : Span{})) << rank << ' ' << from;
      EXPECT_EQ(Parts({}, rank, 3).gotten(from), Span{}) << "a barrier";
    }
}

}  // namespace
}  // namespace keel
