// Collectives through shared memory, step by step: ranks of one thread, each of which goes on when the test says so.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "keel/dist/comm/schedule.h"
#include "tests/dist/comm/stepped_ranks.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::size_t kLine = 64;  // bytes

// Elements of each shard that a round shows.
std::int64_t piece_of(DType dtype, int ranks) {
  const std::size_t lines = NodeArea::kBuffer / static_cast<std::size_t>(ranks) / kLine;
  return static_cast<std::int64_t>(lines * kLine / size_of(dtype));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& each : parts) all += (all.empty() ? "" : ", ") + each;
  return all;
}

// Of two ranks, of which rank 1 comes last.
TEST(NodeSteps, OfASumInThreeRoundsAreTakenAsSoonAsTheyCanBe) {
  SteppedRanks ranks(2);
  const Tensor x = zeros(testing::context(1), {4 * piece_of(DType::f32, 2) + 3});
  const Tensor y = zeros(testing::context(1), {x.numel()});
  for (std::uint64_t i = 0; i < 2; ++i) {
    ranks.trace.clear();
    ranks.begin(0, [&](Communicator& comm) { return comm.all_reduce(x); });
    ranks.begin(1, [&](Communicator& comm) { return comm.all_reduce(y); });
    for (int turn = 0; turn < 3; ++turn)
      for (const int rank : {0, 1}) ranks.step(rank, i);
    const auto at = [&](const char* what, std::uint64_t round, const char* end = "") {
      return concat(what, ' ', 3 * i + round, end);
    };
    EXPECT_EQ(ranks.trace, joined({concat("0 asked ", i + 1), concat("1 asked ", i + 1, '!'),
                                   at("1 shown", 1),          at("1 shown", 2),
                                   at("0 shown", 1, "!"),     at("0 added", 1),
                                   at("0 shown", 2, "!"),     at("0 added", 2),
                                   at("1 added", 1, "!"),     at("1 taken", 1),
                                   at("1 added", 2, "!"),     at("1 taken", 2),
                                   at("0 taken", 1, "!"),     at("0 shown", 3),
                                   at("0 taken", 2, "!"),     at("1 shown", 3, "!"),
                                   at("1 added", 3),          at("0 added", 3, "!"),
                                   at("0 taken", 3),          concat("0 done ", i + 1),
                                   at("1 taken", 3, "!"),     concat("1 done ", i + 1, '!')}));
  }
}

TEST(NodeSteps, OfABroadcastInThreeRoundsWaitForNoSums) {
  SteppedRanks ranks(2);
  constexpr auto kRound = static_cast<std::int64_t>(NodeArea::kBuffer / sizeof(float));
  const Tensor x = zeros(testing::context(1), {2 * kRound + 1}), y = zeros(testing::context(1), {x.numel()});
  ranks.begin(0, [&](Communicator& comm) { return comm.broadcast(x, 0); });
  ranks.begin(1, [&](Communicator& comm) { return comm.broadcast(y, 0); });
  for (int turn = 0; turn < 2; ++turn)
    for (const int rank : {0, 1}) ranks.step(rank, 0);
  EXPECT_EQ(ranks.trace,
            "0 asked 1, 1 asked 1!, 1 shown 1, 1 shown 2, 0 shown 1!, 0 added 1, 0 taken 1, 0 shown 2!, 0 added 2, "
            "0 taken 2, 1 added 1!, 1 taken 1!, 1 shown 3, 1 added 2!, 1 taken 2!, 0 shown 3!, 0 added 3, 0 taken 3, "
            "0 done 1, 1 added 3!, 1 taken 3!, 1 done 1!");
}

// The i-th number that a rank gives to the collective number `which`.
double given_to(int rank, int which, std::int64_t i) {
  return static_cast<double>((rank * 211 + which * 37 + i) % 1'009);
}

// Of a collective: what each rank has before and afterwards.
struct Exercise {
  SteppedRanks::Begin begins;
  Tensor gotten;
  std::vector<double> expected;
  std::optional<std::int64_t> elements_sent = {};  // where that is easily said
};

constexpr int kKinds = 8;

// The collective number `which`, of about so many elements of each rank.
Exercise exercise_of(int which, int n, int rank, std::int64_t each) {
  const Context context = testing::context(1);
  const std::int64_t whole = each * n;
  const int root = which % n;
  const auto mine = [&](std::int64_t count) {
    Tensor x = empty(context, {count}, DType::f64);
    auto* const numbers = reinterpret_cast<double*>(x.raw());
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = given_to(rank, which, i);
    return x;
  };
  const auto room = [&](std::int64_t count) { return zeros(context, {count}, DType::f64); };
  std::vector<double> expected;
  const auto expect = [&](std::int64_t count, auto&& number) {
    for (std::int64_t i = 0; i < count; ++i) expected.push_back(number(i));
  };
  const auto sum = [&](std::int64_t i) {
    double all = 0;
    for (int r = 0; r < n; ++r) all += given_to(r, which, i);
    return all;
  };
  const Span shard = part({0, whole + 1}, n, rank);
  switch (which % kKinds) {
    case 0: {
      const Tensor x = mine(whole + 1);
      expect(whole + 1, sum);
      return {[=](Communicator& comm) { return comm.all_reduce(x); }, x, expected,
              whole + 1 - shard.count() + (n - 1) * shard.count()};
    }
    case 1: {
      const Tensor x = mine(whole + 1), y = room(shard.count());
      expect(shard.count(), [&](std::int64_t i) { return sum(shard.begin + i); });
      return {[=](Communicator& comm) { return comm.reduce_scatter(x, y); }, y, expected, whole + 1 - shard.count()};
    }
    case 2: {
      const Tensor x = mine(shard.count()), y = room(whole + 1);
      for (int r = 0; r < n; ++r)
        expect(part({0, whole + 1}, n, r).count(), [&](std::int64_t i) { return given_to(r, which, i); });
      return {[=](Communicator& comm) { return comm.all_gather(x, y); }, y, expected, (n - 1) * shard.count()};
    }
    case 3: {
      const Tensor x = mine(whole);
      expect(whole, [&](std::int64_t i) { return given_to(root, which, i); });
      return {[=](Communicator& comm) { return comm.broadcast(x, root); }, x, expected};
    }
    case 4: {
      const Tensor x = mine(whole), y = rank == root ? room(whole) : Tensor();
      if (rank == root) expect(whole, sum);
      return {[=](Communicator& comm) { return comm.reduce(x, y, root); }, y, expected};
    }
    case 5: {
      const Tensor x = mine(each), y = rank == root ? room(whole) : Tensor();
      for (int r = 0; rank == root && r < n; ++r) expect(each, [&](std::int64_t i) { return given_to(r, which, i); });
      return {[=](Communicator& comm) { return comm.gather(x, y, root); }, y, expected};
    }
    case 6: {
      const Tensor x = rank == root ? mine(whole) : Tensor(), y = room(each);
      expect(each, [&](std::int64_t i) { return given_to(root, which, each * rank + i); });
      return {[=](Communicator& comm) { return comm.scatter(x, y, root); }, y, expected};
    }
    default: {
      // To the rank itself one element, to the next one most of them, to others a few or none.
      const auto count = [&](int from, int to) -> std::int64_t {
        return from == to ? 1 : (from + 1) % n == to ? each + from : (from + to) % 3;
      };
      Counts sends, receives;
      for (int r = 0; r < n; ++r) {
        sends.push_back(count(rank, r));
        receives.push_back(count(r, rank));
        std::int64_t begin = 0;
        for (int to = 0; to < rank; ++to) begin += count(r, to);
        expect(count(r, rank), [&](std::int64_t i) { return given_to(r, which, begin + i); });
      }
      const auto sum_of = [](const Counts& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      };
      const Tensor x = mine(sum_of(sends)), y = room(sum_of(receives));
      return {[=](Communicator& comm) { return comm.all_to_all_v(x, y, sends, receives); }, y, expected, x.numel() - 1};
    }
  }
}

TEST(NodeSteps, HaveTheSameNumbersInWhateverOrderRanksGoOn) {
  constexpr int kCollectives = 3 * kKinds;  // more than slots
  for (const bool one_address_space : {false, true})
    for (const int n : {2, 3}) {
      SCOPED_TRACE(concat(n, " ranks", one_address_space ? " of one address space" : ""));
      std::mt19937 engine(static_cast<unsigned>(n));
      const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(engine()) % limit; };
      SteppedRanks ranks(n, one_address_space);
      const std::int64_t piece = piece_of(DType::f64, n);
      // Of each kind several rounds, what travels with the signature, and something between.
      const auto size = [&](int i) -> std::int64_t {
        const int turn = (i + 2 * (i / kKinds)) % 3;
        return turn == 0 ? 2 * piece + 1 : turn == 1 ? i % 4 : i % 2 == 0 ? piece + 3 : 300;
      };
      std::vector<std::vector<Exercise>> exercises(static_cast<std::size_t>(n));
      for (int r = 0; r < n; ++r)
        for (int i = 0; i < kCollectives; ++i)
          exercises[static_cast<std::size_t>(r)].push_back(exercise_of(i, n, r, size(i)));
      std::vector<std::size_t> begun(static_cast<std::size_t>(n)), first = begun;
      for (int i = 0; i < 5'000; ++i) {
        const std::size_t r = below(begun.size());
        const int rank = static_cast<int>(r);
        if (begun[r] < kCollectives && below(3) == 0) ranks.begin(rank, exercises[r][begun[r]++].begins);
        if (begun[r] == 0) continue;
        if (below(4) == 0) ranks.step(rank, below(begun[r]));
        else if (first[r] < begun[r] && ranks.step(rank, first[r])) ++first[r];
      }
      for (int r = 0; r < n; ++r) {
        const auto own = static_cast<std::size_t>(r);
        ASSERT_EQ(begun[own], static_cast<std::size_t>(kCollectives));
        for (std::size_t i = 0; i < kCollectives; ++i) {
          ASSERT_TRUE(ranks.step(r, i)) << "collective " << i << " of rank " << r;
          const Exercise& each = exercises[own][i];
          if (each.gotten.defined()) { EXPECT_TRUE(doubles(each.gotten) == each.expected) << i << " of rank " << r; }
          if (each.elements_sent) { EXPECT_EQ(ranks.work(r, i).sent(), 8 * *each.elements_sent) << i; }
        }
        EXPECT_EQ(ranks.area(r).asked, static_cast<std::uint64_t>(kCollectives));
        EXPECT_EQ(ranks.area(r).done, static_cast<std::uint64_t>(kCollectives));
        EXPECT_EQ(ranks.area(r).visitors, 0U);
        EXPECT_EQ(ranks[r].traffic().control, kCollectives * 24 * (n - 1)) << "signatures of 24 bytes";
        for (const auto counter : {&NodeArea::added, &NodeArea::taken})
          EXPECT_EQ((ranks.area(r).*counter).load(), ranks.area(0).shown.load());
      }
    }
}

// Rounds that a collective of each rank takes.
std::uint64_t rounds_of(int n, const SteppedRanks::Begin& begins) {
  SteppedRanks ranks(n);
  ranks.run(begins);
  for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.area(r).done, 1U);
  return ranks.area(0).taken;
}

TEST(NodeSteps, AreNoRoundsForWhatTravelsWithItsSignature) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    const auto limit = static_cast<std::int64_t>(NodeArea::kSmall / size_of(dtype));
    for (const int n : {2, 3})
      for (const std::int64_t count : {limit - 1, limit, limit + 1}) {
        const std::uint64_t rounds = count > limit ? 1 : 0;
        EXPECT_EQ(rounds_of(n, [&](Communicator& comm) { return comm.all_reduce(zeros(context, {count}, dtype)); }),
                  rounds);
        // One of the ranks gives so much.
        for (int giver = 0; giver < n; ++giver)
          EXPECT_EQ(rounds_of(n,
                              [&](Communicator& comm) {
                                const int to = (giver + 1) % n;
                                Counts sends(static_cast<std::size_t>(n)), receives = sends;
                                if (comm.rank() == giver) sends[static_cast<std::size_t>(to)] = count;
                                if (comm.rank() == to) receives[static_cast<std::size_t>(giver)] = count;
                                return comm.all_to_all_v(zeros(context, {comm.rank() == giver ? count : 0}, dtype),
                                                         zeros(context, {comm.rank() == to ? count : 0}, dtype), sends,
                                                         receives);
                              }),
                    rounds)
              << giver;
      }
  }
}

TEST(NodeSteps, AreAsManyRoundsAsTheLongestPartHasPieces) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::u8, DType::f32, DType::f64})
    for (const int n : {2, 3, 5}) {
      const std::int64_t piece = piece_of(dtype, n);
      for (const std::int64_t each : {piece - 1, piece, piece + 1}) {
        const std::uint64_t rounds = each > piece ? 2 : 1;
        EXPECT_EQ(rounds_of(n, [&](Communicator& comm) { return comm.all_reduce(zeros(context, {n * each}, dtype)); }),
                  rounds)
            << dtype << ' ' << n;
        for (const int giver : {0, n - 1})
          EXPECT_EQ(rounds_of(n,
                              [&](Communicator& comm) {
                                // Of a giver all parts are as long but that for the last rank.
                                Counts sends(static_cast<std::size_t>(n)), receives = sends;
                                if (comm.rank() == giver) std::fill(sends.begin(), sends.end() - 1, each);
                                if (comm.rank() < n - 1) receives[static_cast<std::size_t>(giver)] = each;
                                const auto size = [](const Counts& counts) {
                                  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
                                };
                                return comm.all_to_all_v(zeros(context, {size(sends)}, dtype),
                                                         zeros(context, {size(receives)}, dtype), sends, receives);
                              }),
                    rounds)
              << dtype << ' ' << n << ' ' << giver;
      }
    }
}

TEST(NodeSteps, OfARankThatIsAheadAreOnlyAsManyAsThereAreSlots) {
  constexpr std::uint64_t kMany = 40;
  const auto begin_sum = [](int i) {
    return [i](Communicator& comm) {
      return comm.all_reduce(tensor_of(testing::context(1), {comm.rank() + i + 0.5}, {1}));
    };
  };
  SteppedRanks ranks(3);
  for (std::uint64_t i = 0; i < kMany; ++i) ranks.begin(0, begin_sum(static_cast<int>(i)));
  EXPECT_EQ(ranks.area(0).asked, NodeArea::kSlots);
  for (std::uint64_t i = 0; i < kMany; ++i) {
    for (const int r : {1, 2}) ranks.begin(r, begin_sum(static_cast<int>(i)));
    for (const std::size_t asked : {i, std::min<std::size_t>(i + NodeArea::kSlots, kMany - 1)}) {
      ranks.step(0, asked);
      // Rank 2 has brought the last that the others wait for, but rank 1 has not looked.
      EXPECT_EQ(ranks.area(0).asked, std::min<std::uint64_t>(kMany, NodeArea::kSlots + i));
    }
    EXPECT_TRUE(ranks.step(1, i));
    EXPECT_TRUE(ranks.step(2, i));
    if (i + NodeArea::kSlots < kMany) ranks.step(0, i + NodeArea::kSlots);
    EXPECT_EQ(ranks.area(0).asked, std::min<std::uint64_t>(kMany, NodeArea::kSlots + i + 1));
  }
}

TEST(NodeSteps, OfARankWhoseTensorsOthersStillReadHaveNotFinished) {
  SteppedRanks ranks(2, true);
  const Tensor x = zeros(testing::context(1), {5'000}), y = zeros(testing::context(1), {5'000});
  for (std::uint64_t i = 0; i < 2; ++i) {
    ranks.begin(0, [&](Communicator& comm) { return comm.all_reduce(x); });
    ranks.begin(1, [&](Communicator& comm) { return comm.all_reduce(y); });
    EXPECT_EQ(ranks.area(1).done, i + 1);
    EXPECT_FALSE(ranks.step(1, i)) << "rank 0 has not come by";
    EXPECT_TRUE(ranks.step(0, i));
    EXPECT_TRUE(ranks.step(1, i));
    EXPECT_EQ(ranks.area(0).done, i + 1);
  }
}

// Rank 0 waits for one that comes behind those that have slots. Rank 1 has asked for the first of all, rank 2 for none.
TEST(NodeTimeOut, OfACollectiveFarAheadNamesThoseWhoAreBehindInTheFirst) {
  for (const bool have_all_asked : {false, true})
    for (const int ahead : {1, 15, 16, 17, 20}) {
      SteppedRanks ranks(3, false, {.timeout = std::chrono::milliseconds(3)});
      const auto begins = [](Communicator& comm) { return comm.all_reduce(zeros(testing::context(1), {1})); };
      Work last;
      for (int i = 0; i <= ahead; ++i) ranks.begin(0, [&](Communicator& comm) { return last = begins(comm); });
      ranks.begin(1, begins);
      if (have_all_asked) ranks.begin(2, begins);
      const std::string told = error_of([&] { last.wait(); });
      const std::string named = have_all_asked || ahead < static_cast<int>(NodeArea::kSlots) ? "ranks 1, 2" : "rank 2";
      EXPECT_EQ(told, concat("rank 0 gave up after 3 ms in all_reduce of 1 f32 (sum) (collective number ", ahead,
                             "): nothing came from ", named));
    }
}

// All have asked for both; rank 1 has read the others' tensors, and rank 2 has not.
TEST(NodeTimeOut, NamesThoseWhoStillReadInTheCollectiveBefore) {
  SteppedRanks ranks(3, true, {.timeout = std::chrono::milliseconds(3)});
  Work small;
  for (const int rank : {2, 1, 0}) {
    ranks.begin(rank, [](Communicator& comm) { return comm.all_reduce(zeros(testing::context(1), {5'000})); });
    ranks.begin(rank, [&](Communicator& comm) { return small = comm.all_reduce(zeros(testing::context(1), {1})); });
  }
  EXPECT_FALSE(ranks.step(1, 0));
  EXPECT_EQ(error_of([&] { small.wait(); }),
            "rank 0 gave up after 3 ms in all_reduce of 1 f32 (sum) (collective number 1): nothing came from rank 2");
}

}  // namespace
}  // namespace keel
