// What ranks tell of the collectives that they have asked for, and which differences it shows.

#include "keel/dist/comm/history.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "keel/dist/comm/algorithms.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;
using Told = CollectiveHistory::Told;

constexpr const char* kBefore =
    "ranks asked for different collectives before barrier, number 9; check_every 1 names the first";

std::string difference_of(const std::vector<Told>& told) { return difference(told, "barrier, number 9"); }

Signature signature_of(std::uint32_t sequence, const Collective& collective, int rank = 0) {
  return {sequence, collective, 0, rank};
}
Collective asked_sum(std::int64_t count, DType dtype = DType::f32, CombineOp op = CombineOp::sum, int subject = 0) {
  const Tensor x = empty(testing::context(1), {count}, dtype);
  return {.kind = CollectiveKind::all_reduce, .input = x, .output = x, .op = op, .subject = subject};
}

// Rank 0 has asked for the first list and rank 1 for the second one; now both ask for a barrier.
std::string difference_after(const std::vector<Collective>& first, const std::vector<Collective>& second) {
  std::vector<Told> told;
  for (const auto* asked : {&first, &second}) {
    CollectiveHistory history;
    const auto rank = static_cast<int>(told.size());
    for (const Collective& each : *asked) history.add(signature_of(0, each, rank));
    told.push_back(history.add(signature_of(9, {})));
  }
  return difference_of(told);
}

TEST(CollectiveHistory, OfRanksThatAskForTheSameShowsNoDifference) {
  std::vector<Collective> asked;
  for (int i = 0; i < 40; ++i) {
    asked.push_back(asked_sum(i, DType::bf16, CombineOp::maximum, i));
    EXPECT_EQ(difference_after(asked, asked), "");
  }
}

TEST(CollectiveHistory, ShowsWhateverDifferedBefore) {
  const std::vector<Collective> others = {asked_sum(8), asked_sum(7, DType::f64),
                                          asked_sum(7, DType::f32, CombineOp::mean),
                                          asked_sum(7, DType::f32, CombineOp::sum, 1), Collective{}};
  for (std::size_t length = 1; length < 6; ++length)
    for (std::size_t place = 0; place < length; ++place)
      for (const Collective& other : others) {
        const std::vector<Collective> asked(length, asked_sum(7));
        std::vector<Collective> changed = asked;
        changed[place] = other;
        EXPECT_EQ(difference_after(asked, changed), kBefore);
        EXPECT_EQ(difference_after(changed, asked), kBefore);
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(place));
        EXPECT_EQ(difference_after(asked, changed), kBefore);
      }
  EXPECT_EQ(difference_after({asked_sum(7), asked_sum(8)}, {asked_sum(8), asked_sum(7)}), kBefore)
      << "in another order";
}

TEST(CollectiveHistory, NamesADifferenceInTheCollectiveAtHand) {
  const std::vector<Told> told = {CollectiveHistory().add(signature_of(3, asked_sum(7))),
                                  CollectiveHistory().add(signature_of(3, asked_sum(7))),
                                  CollectiveHistory().add(signature_of(3, asked_sum(8)))};
  EXPECT_EQ(difference_of(told),
            "ranks ask for different collectives as number 3: rank 0 for all_reduce of 7 f32 (sum, direct), rank 2 for "
            "all_reduce of 8 f32 (sum, direct)");
}

// What lies behind the vector's end is not asked.
TEST(CollectiveHistory, OfARankAloneShowsNoDifference) {
  std::vector<Told> told = {CollectiveHistory().add(signature_of(3, {})), CollectiveHistory().add(signature_of(4, {}))};
  told.pop_back();
  EXPECT_EQ(difference_of(told), "");
}

// Of `rank` in an all_to_all_v, where rank 0 sends rank 1 so many more than that receives.
Collective uneven_exchange(int rank, std::int64_t more) {
  constexpr std::int64_t kMany = 50'000'000;
  const Tensor x = empty(testing::context(1), {0});
  if (rank == 0)
    return {.kind = CollectiveKind::all_to_all,
            .input = x,
            .output = x,
            .counts = {5, kMany + more},
            .incoming = {5, kMany}};
  return {.kind = CollectiveKind::all_to_all, .input = x, .output = x, .counts = {kMany, 6}, .incoming = {kMany, 6}};
}

TEST(CollectiveHistory, ShowsPairsThatDidNotFitBefore) {
  for (const std::int64_t more : {0, 1, -1, 1'000}) {
    std::vector<Told> told;
    for (const int rank : {0, 1}) {
      CollectiveHistory history;
      history.add(signature_of(0, uneven_exchange(rank, more), rank));
      history.add(signature_of(1, uneven_exchange(rank, 0), rank));
      told.push_back(history.add(signature_of(9, {}, rank)));
    }
    EXPECT_EQ(difference_of(told), more == 0 ? "" : kBefore) << more;
  }
}

// Each of `kRanks` sends 9 elements to each, but `sender` to `receiver` so many more.
constexpr std::size_t kRanks = 4;
Collective exchange_of(std::size_t rank, std::size_t sender, std::size_t receiver, std::int64_t more) {
  const Tensor x = empty(testing::context(1), {0});
  Collective made{.kind = CollectiveKind::all_to_all,
                  .input = x,
                  .output = x,
                  .counts = std::vector<std::int64_t>(kRanks, 9),
                  .incoming = std::vector<std::int64_t>(kRanks, 9)};
  if (rank == sender) made.counts[receiver] += more;
  return made;
}

TEST(Signatures, NameAnyPairThatDoesNotFit) {
  for (std::size_t sender = 0; sender < kRanks; ++sender)
    for (std::size_t receiver = 0; receiver < kRanks; ++receiver)
      for (const std::int64_t more : {1, 7, -5}) {
        std::vector<Signature> asked;
        for (std::size_t r = 0; r < kRanks; ++r)
          asked.push_back(signature_of(3, exchange_of(r, sender, receiver, more), static_cast<int>(r)));
        EXPECT_EQ(difference(asked), concat("ranks send each other other counts than they receive in all_to_all_v, "
                                            "number 3: rank ",
                                            sender, " sends rank ", receiver, ' ', std::abs(more),
                                            more > 0 ? " more" : " less", " than that receives"));
      }
}

TEST(Signatures, OfDifferentNumbersAreToldWithBoth) {
  for (const std::size_t odd : {1, 2}) {
    std::vector<Signature> asked(3, signature_of(3, asked_sum(7)));
    asked[odd] = signature_of(4, asked_sum(7));
    EXPECT_EQ(difference(asked), concat("ranks ask for different collectives as number 3: rank 0 for all_reduce of 7 "
                                        "f32 (sum, direct), rank ",
                                        odd, " for all_reduce of 7 f32 (sum, direct) as number 4"));
  }
}

// Of rank 0, whose counterpart asks for a barrier.
std::string told_of(const Signature& signature) {
  const std::string text = difference({signature, signature_of(signature.sequence, {})});
  const std::string opening = "ranks ask for different collectives as number 3: rank 0 for ";
  const std::string end = ", rank 1 for barrier";
  EXPECT_TRUE(text.starts_with(opening) && text.ends_with(end)) << text;
  return text.substr(opening.size(), text.size() - opening.size() - end.size());
}

TEST(Signatures, AreToldInAllTheirParts) {
  const Tensor six = empty(testing::context(1), {6}, DType::bf16);
  const auto told = [&](Collective collective) {
    collective.input = collective.output = six;
    return told_of(signature_of(3, collective));
  };
  using Kind = CollectiveKind;
  EXPECT_EQ(told({.kind = Kind::all_reduce}), "all_reduce of 6 bf16 (sum, direct)");
  EXPECT_EQ(told({.kind = Kind::all_reduce, .op = CombineOp::maximum, .subject = 1}),
            "all_reduce of 6 bf16 about 1 (maximum, direct)");
  EXPECT_EQ(told({.kind = Kind::all_gather, .subject = 65'535}), "all_gather of 6 bf16 about 65535");
  EXPECT_EQ(told({.kind = Kind::all_to_all}), "all_to_all of 6 bf16");
  EXPECT_EQ(told({.kind = Kind::broadcast, .peer = 2}), "broadcast of 6 bf16 from rank 2");
  EXPECT_EQ(told({.kind = Kind::scatter}), "scatter of 6 bf16 from rank 0");
  EXPECT_EQ(told({.kind = Kind::gather, .peer = 1}), "gather of 6 bf16 to rank 1");
  EXPECT_EQ(told({.kind = Kind::reduce, .op = CombineOp::minimum, .peer = 1}),
            "reduce of 6 bf16 to rank 1 (minimum, direct)");
  EXPECT_EQ(told({.kind = Kind::all_gather, .counts = {4, 2}}), "all_gather_v of 6 bf16");
  EXPECT_EQ(told({.kind = Kind::reduce_scatter, .counts = {1, 5}}), "reduce_scatter_v of 6 bf16 (sum, direct)");
  EXPECT_EQ(told({.kind = Kind::gather, .peer = 1, .counts = {4, 2}}), "gather of 6 bf16 to rank 1");
  EXPECT_EQ(told({.kind = Kind::all_to_all, .counts = {3, 3}, .incoming = {3, 3}}), "all_to_all_v of bf16");
  EXPECT_EQ(told({.kind = Kind::all_to_all, .counts = {3, 3}, .incoming = {3, 5}}), "all_to_all_v of bf16");
}

TEST(Signatures, OfAnAlgorithmThatIsNoneHaveNoNameOfIt) {
  Signature signature = signature_of(3, asked_sum(7));
  const auto count = static_cast<std::uint8_t>(algorithms().size());
  signature.algorithm = count;
  EXPECT_EQ(told_of(signature), "all_reduce of 7 f32 (sum)");
  signature.algorithm = static_cast<std::uint8_t>(count - 1);
  EXPECT_EQ(told_of(signature), concat("all_reduce of 7 f32 (sum, ", algorithms().back()->name, ')'));
}

TEST(Signatures, HaveTheSubjectAboveTheCount) {
  EXPECT_EQ(signature_of(3, asked_sum(7, DType::f32, CombineOp::sum, 65'535)).count_and_subject,
            0xffff'0000'0000'0007U);
  const Tensor x = empty(testing::context(1), {6});
  EXPECT_EQ(signature_of(3, {.kind = CollectiveKind::broadcast, .input = x, .output = x, .peer = 2}).count_and_subject,
            0x0002'0000'0000'0006U);
}

// Else they would be those of a collective without counts.
TEST(Signatures, OfCountsHaveADigestHoweverSmallTheyAre) {
  for (const std::int64_t each : {0, 1, 2}) {
    const Tensor x = empty(testing::context(1), {2 * each}), own = empty(testing::context(1), {each});
    const Signature signature =
        signature_of(3, {.kind = CollectiveKind::all_gather, .input = own, .output = x, .counts = {each, each}});
    EXPECT_NE(signature.digest, 0U);
    EXPECT_NE(difference({signature, signature_of(3, {.kind = CollectiveKind::all_gather, .input = own, .output = x})}),
              "");
  }
}

TEST(Signatures, OfCountsDifferWhereAnyTwoOfThemDo) {
  const Tensor x = empty(testing::context(1), {60}), own = empty(testing::context(1), {10});
  const auto of = [&](const Counts& counts) {
    return signature_of(3, {.kind = CollectiveKind::all_gather, .input = own, .output = x, .counts = counts});
  };
  const Counts even(6, 10);
  for (std::size_t more = 0; more < 6; ++more)
    for (std::size_t less = 0; less < 6; ++less) {
      Counts counts = even;
      ++counts[more];
      --counts[less];
      EXPECT_EQ(of(counts) == of(even), more == less) << more << ' ' << less;
    }
}

// What lies behind the vector's end is not asked.
TEST(Signatures, OfARankAloneShowNoDifference) {
  std::vector<Signature> asked = {signature_of(3, {}), signature_of(3, uneven_exchange(0, 1))};
  asked.pop_back();
  EXPECT_EQ(difference(asked), "");
}

TEST(Collective, IsToldWithTheRankThatItGoesToOrComesFrom) {
  const std::pair<CollectiveKind, std::string> kinds[] = {{CollectiveKind::send, "send of 6 f32 to rank 2"},
                                                          {CollectiveKind::receive, "receive of 6 f32 from rank 2"},
                                                          {CollectiveKind::broadcast, "broadcast of 6 f32 from rank 2"},
                                                          {CollectiveKind::scatter, "scatter of 6 f32 from rank 2"},
                                                          {CollectiveKind::gather, "gather of 6 f32 to rank 2"},
                                                          {CollectiveKind::reduce, "reduce of 6 f32 (sum) to rank 2"},
                                                          {CollectiveKind::all_gather, "all_gather of 6 f32"},
                                                          {CollectiveKind::all_to_all, "all_to_all of 6 f32"},
                                                          {CollectiveKind::barrier, "barrier"}};
  const Tensor x = empty(testing::context(1), {6});
  for (const auto& [kind, text] : kinds)
    EXPECT_EQ(concat(Collective{.kind = kind, .input = x, .output = x, .peer = 2}), text);
}

// A larger number may be the chance of another pair.
TEST(Signatures, NameThePairThatDoesNotFitUpToALargestNumber) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 24;
  const std::string opening = "ranks send each other other counts than they receive in all_to_all_v, number 3";
  for (const std::int64_t more : {std::int64_t{1}, kLargest - 1, kLargest, kLargest + 1, 2 * kLargest})
    for (const std::int64_t sign : {1, -1}) {
      const std::string named =
          concat(": rank 0 sends rank 1 ", more, sign > 0 ? " more" : " less", " than that receives");
      EXPECT_EQ(difference({signature_of(3, uneven_exchange(0, sign * more), 0),
                            signature_of(3, uneven_exchange(1, sign * more), 1)}),
                opening + (more <= kLargest ? named : ""));
    }
}

}  // namespace
}  // namespace keel
