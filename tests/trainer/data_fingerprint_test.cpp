// Who has which data, in words.

#include "keel/trainer/data_fingerprint.h"

#include <gtest/gtest.h>

#include <string>

#include "keel/dist/comm/run_ranks.h"

namespace keel {
namespace {

// What the first rank hears where each has the fingerprint of its letter.
std::string heard_of(const std::string& letters) {
  std::string first;
  run_ranks(static_cast<int>(letters.size()), [&](Communicator& ranks) {
    const std::string text = compare_fingerprints(ranks, letters.substr(static_cast<std::size_t>(ranks.rank()), 1));
    if (ranks.rank() == 0) first = text;
  });
  return first;
}

TEST(DataFingerprints, OfRanksAreToldByTheRanksThatHaveThem) {
  EXPECT_EQ(heard_of("a"), "");
  EXPECT_EQ(heard_of("aaa"), "");
  EXPECT_EQ(heard_of("ab"), "rank 0 has a, rank 1 has b");
  EXPECT_EQ(heard_of("aab"), "ranks 0 and 1 have a, rank 2 has b");
  EXPECT_EQ(heard_of("abbb"), "rank 0 has a, ranks 1, 2 and 3 have b");
  EXPECT_EQ(heard_of("aba"), "ranks 0 and 2 have a, rank 1 has b");
  EXPECT_EQ(heard_of("abbbbbbbb"), "rank 0 has a, ranks 1, 2, 3, 4, 5, 6, 7 and 8 have b");
  EXPECT_EQ(heard_of("abbbbbbbbb"), "rank 0 has a, ranks 1, 2, 3, 4, 5, 6, 7, 8, ... (9 ranks) have b");
}

TEST(DataFingerprints, OfMoreThanEightKindsAreNotAllNamed) {
  const std::string eight =
      "rank 0 has a, rank 1 has b, rank 2 has c, rank 3 has d, rank 4 has e, rank 5 has f, rank 6 has g, rank 7 has h";
  EXPECT_EQ(heard_of("abcdefgh"), eight);
  EXPECT_EQ(heard_of("abcdefghi"), eight + ", and others still others");
}

}  // namespace
}  // namespace keel
