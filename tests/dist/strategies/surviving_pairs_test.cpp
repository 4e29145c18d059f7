// Groups of two ranks of which some are lost: none of the others waits in its group for one that waits for it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/strategies/surviving_groups.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/comm/altered_communicator.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Begins a collective, and sleeps before it looks at it again: by then a rank that is done with it may have gone.
AlteredCommunicator::Begin then_sleep(std::chrono::milliseconds time) {
  return [time](Communicator& inner, const Collective& collective) {
    Work work = inner.begin(collective);
    std::this_thread::sleep_for(time);
    return work;
  };
}

constexpr int kOfPair = 2;
constexpr int kPairedRanks = 6;

// By rank: the number of the collective, of those that it asks for once all groups have met, before which it goes.
using PairDeaths = std::map<int, std::int64_t>;

// Attempts with collectives of groups between them, and in them behind those of all ranks. What each rank has that
// comes to the end: how many collectives it has asked for, of how many ranks it knows that they are left, and what
// groups have summed among them in the last attempt.
std::vector<std::vector<double>> met(const PairDeaths& deaths, int sleepy_place) {
  return results_of_those_left(
      kPairedRanks,
      [&](Communicator& direct) -> std::vector<double> {
        const auto death = deaths.find(direct.rank());
        std::int64_t before = -1, asked = 0;
        WatchedCommunicator watched(direct, [&](std::int64_t number, const Collective&) {
          asked = number + 1;
          if (death != deaths.end() && before >= 0 && number - before >= death->second) die();
        });
        const bool is_sleepy = direct.rank() % kOfPair == sleepy_place && !deaths.contains(direct.rank());
        AlteredCommunicator ranks(watched, then_sleep(std::chrono::milliseconds(is_sleepy ? 15 : 0)));
        const auto pair = watched.split_apart(direct.rank() / kOfPair, direct.rank() % kOfPair);
        SurvivingGroups groups(ranks, kOfPair);
        const auto meet_in_pair = [&] {
          const Tensor x = kernels::full(testing::context(1), {1}, 1);
          pair->all_reduce(x).wait();
          EXPECT_EQ(x.item(), kOfPair);
        };
        const Tensor sum = empty(testing::context(1), {1});
        before = asked;
        for (int round = 0; round < 3; ++round) {
          groups.attempt([&] {
            kernels::fill(sum, 1);
            groups.axis().all_reduce(sum).wait();
            gather_values(groups.ranks(), round);
            meet_in_pair();
          });
          meet_in_pair();
        }
        return {static_cast<double>(asked - before), static_cast<double>(groups.ranks().size()), sum.item()};
      },
      {.timeout = std::chrono::seconds(6)});
}

void expect_others_to_end(const PairDeaths& deaths, int sleepy_place) {
  const auto left = met(deaths, sleepy_place);
  std::vector<int> groups_lost;
  std::string what = concat("place ", sleepy_place, " is sleepy");
  for (const auto& [rank, at] : deaths) {
    groups_lost.push_back(rank / kOfPair);
    what += concat(", rank ", rank, " goes before collective ", at);
  }
  for (int rank = 0; rank < kPairedRanks; rank += kOfPair) {
    if (std::ranges::find(groups_lost, rank / kOfPair) != groups_lost.end()) continue;
    const std::vector<double>& one = left[static_cast<std::size_t>(rank)];
    const std::vector<double>& other = left[static_cast<std::size_t>(rank) + 1];
    ASSERT_TRUE(one.size() == 3 && other.size() == 3) << what;
    EXPECT_EQ(one[1], other[1]) << what;
    EXPECT_EQ(one[2], other[2]) << what;
  }
}

std::int64_t asked_in_all() { return static_cast<std::int64_t>(met({}, -1).front().front()); }

int stride() { return has_processes() ? 4 : 1; }

TEST(SurvivingPairs, AllMeetWhereNoneGoesAndTwoOfThemWhereOneGoesWhole) {
  for (const std::vector<double>& each : met({}, -1)) {
    ASSERT_EQ(each.size(), 3U);
    EXPECT_EQ(each[1], kPairedRanks);
    EXPECT_EQ(each[2], kPairedRanks / kOfPair);
  }
  const auto left = met({{2, 4}, {3, 4}}, -1);
  for (const int rank : {0, 1, 4, 5}) {
    const std::vector<double>& each = left[static_cast<std::size_t>(rank)];
    ASSERT_EQ(each.size(), 3U);
    EXPECT_EQ(each[1], kPairedRanks - kOfPair);
    EXPECT_EQ(each[2], kPairedRanks / kOfPair - 1);
  }
}

// What a rank of two pairs, of which the other one goes, has of a sum before that and of one behind it; how often it
// began one, and came to its end; and how many groups are lost. Rank 1 may be told of an end that others do not hear
// of: by a barrier that the others have passed, or inside the second sum.
std::vector<double> sums_of_pairs(Communicator& direct, int missed_barrier, bool breaks_inside) {
  const auto all = direct.split_apart(0, direct.rank()),
             pair = direct.split_apart(direct.rank() / kOfPair, direct.rank());
  int barriers = 0;
  AlteredCommunicator ranks(direct, [&](Communicator& inner, const Collective& collective) {
    Work work = inner.begin(collective);
    const bool is_barrier = collective.kind == CollectiveKind::barrier;
    if (direct.rank() != 1 || !is_barrier || ++barriers != missed_barrier) return work;
    work.wait();
    all->barrier();
    throw Error("rank 2 has gone", ErrorKind::peer);
  });
  SurvivingGroups groups(ranks, kOfPair);  // with a barrier of its own
  std::string lost;
  groups.when_lost([&](const LostGroup& group) {
    lost += concat(group.number, ": ", group.first, " to ", group.last, ", ", group.left, " left");
  });
  const Tensor x = empty(testing::context(1), {1});
  double begun = 0, ended = 0;
  const auto sum = [&](bool breaks) {
    groups.attempt([&] {
      ++begun;
      if (breaks)
        groups.ranks().attempt([&] {
          if (begun == 2 && direct.rank() == 1) throw Error("rank 2 has gone", ErrorKind::peer);
          groups.axis().attempt([] {});
        });
      ++ended;
      kernels::fill(x, 1);
      pair->all_reduce(x).wait();
      groups.axis().all_reduce(x).wait();
    });
    if (missed_barrier > 0 && begun == 1 && direct.rank() != 1) all->barrier();
    pair->barrier();  // nobody is left behind
    return x.item();
  };
  const double before = sum(false);
  if (direct.rank() >= kOfPair) die();
  const double after = sum(breaks_inside);
  EXPECT_EQ(lost, "1: 2 to 3, 1 left");
  return {before, after, begun, ended, static_cast<double>(groups.ranks().losses())};
}

void expect_sums_of_pairs(int missed_barrier, bool breaks_inside, const std::vector<double>& expected) {
  const auto left = results_of_those_left(
      4, [&](Communicator& direct) { return sums_of_pairs(direct, missed_barrier, breaks_inside); },
      {.timeout = std::chrono::seconds(2)});
  EXPECT_EQ(left, (std::vector<std::vector<double>>{expected, expected, {}, {}}));
}

// The other one of the pair has passed, and so has this one.
TEST(SurvivingPairs, HaveEndedAnAttemptWhereOneOfThemHas) { expect_sums_of_pairs(2, false, {4, 2, 3, 3, 1}); }

// The other one of the pair does not go on to where it would wait for this one.
TEST(SurvivingPairs, LeaveAnAttemptInsideAnotherOneTogether) { expect_sums_of_pairs(0, true, {4, 2, 3, 2, 1}); }

// Of the sum that was broken each has a number of the pair alone.
TEST(SurvivingPairs, RepeatAnAttemptThatNoneOfThemHasPassed) { expect_sums_of_pairs(0, false, {4, 2, 3, 3, 1}); }

// One waits in its pair for the other one, which has no part in that: when the former gives up, nobody has gone.
TEST(SurvivingPairs, EndWhereAPairIsKeptApartByNoLoss) {
  const auto told = messages(4,
                             [](Communicator& direct) {
                               SurvivingGroups groups(direct, kOfPair);
                               groups.attempt([&] {
                                 if (direct.rank() != 1) groups.axis().attempt([] {});
                               });
                             },
                             {.timeout = std::chrono::milliseconds(700)});
  for (const std::string& each : told) EXPECT_NE(each, "");
}

TEST(SurvivingPairs, EndWhereverARankOfAnotherOneGoes) {
  const std::int64_t asked = asked_in_all();
  ASSERT_GT(asked, 12);
  for (std::int64_t at = 0; at < asked; at += stride())
    expect_others_to_end({{at % 4 < 2 ? 5 : 0, at}}, at % 2 == 0 ? 1 : 0);
}

TEST(SurvivingPairs, EndWhereAWholeOneGoes) {
  const std::int64_t asked = asked_in_all();
  for (std::int64_t at = 0; at < asked; at += stride()) expect_others_to_end({{2, at}, {3, at}}, 1);
}

TEST(SurvivingPairs, EndWhereRanksOfTwoOthersGo) {
  const std::int64_t asked = asked_in_all();
  for (std::int64_t at = 0; at + 2 < asked; at += 4) {
    expect_others_to_end({{1, at}, {4, at}}, 1);
    expect_others_to_end({{1, at}, {4, at + 2}}, 0);
  }
}

}  // namespace
}  // namespace keel
