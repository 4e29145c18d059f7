// What ranks of a node show each other: how far they have come, how they went, and whether they have given up.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <tuple>

#include "keel/dist/comm/node_memory.h"
#include "keel/dist/comm/schedule.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/comm/watched_transport.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

bool is_all(const Tensor& x, float value) {
  const std::vector<float> values = x.to_vector<float>();
  return std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

using TensorsOf = std::function<Tensor(std::int64_t count)>;  // full of this rank's number and 1

constexpr int kWatched = 3;
constexpr std::int64_t kElements = 150'000;  // two rounds, also of its shards

// Calls f on ranks whose counters are watched, of which one is slow whenever it has shown something. Together they take
// so many collectives and rounds.
void watch(int slow, std::uint64_t collectives, std::uint64_t rounds,
           const std::function<void(Communicator&, const TensorsOf&)>& f) {
  const ThreadHub hub(kWatched);
  const auto run = [&](int rank) {
    SharedAreas areas;
    const auto look = [rank, slow](const SharedAreas& seen, bool /*for_others*/) {
      expect_no_rank_ahead(seen);
      if (rank == slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    const auto comm = make_communicator(std::make_unique<WatchedTransport>(hub.connect(rank), areas, look));
    const Context context = testing::context(1);
    f(*comm, [&](std::int64_t count) { return kernels::full(context, {count}, static_cast<float>(rank + 1)); });
    const NodeArea& own = area_of(areas, static_cast<std::size_t>(rank));
    EXPECT_EQ(own.asked, collectives);
    EXPECT_EQ(own.done, collectives);
    EXPECT_EQ(own.shown, rounds);
    EXPECT_EQ(own.added, rounds);
    EXPECT_EQ(own.taken, rounds);
    comm->barrier();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kWatched; ++rank) threads.emplace_back(run, rank);
}

TEST(NodeCounters, NeverRunAheadOfWhatTheyRestOn) {
  watch(1, 2, 4, [](Communicator& comm, const TensorsOf& mine) {
    for (int i = 0; i < 2; ++i) {
      const Tensor x = mine(kElements);
      comm.all_reduce(x).wait();
      EXPECT_TRUE(is_all(x, 6));
    }
  });
}

// Elements of each shard that a round shows.
TEST(NodeCounters, CountNoRoundBehindTheLastPiece) {
  constexpr std::int64_t kPiece = NodeArea::kBuffer / sizeof(float) / kWatched / 16 * 16;
  const std::pair<std::int64_t, std::uint64_t> cases[] = {
      {kPiece - 1, 1}, {kPiece, 1}, {kPiece + 1, 2}, {2 * kPiece - 1, 2}, {2 * kPiece, 2}};
  for (const auto& [elements, rounds] : cases)
    watch(1, 1, rounds, [elements = elements](Communicator& comm, const TensorsOf& mine) {
      const Tensor x = mine(kWatched * elements);
      comm.all_reduce(x).wait();
      EXPECT_TRUE(is_all(x, 6));
    });
}

TEST(NodeCounters, OfSumsForSomeRanksCountAllRounds) {
  watch(0, 2, 4, [](Communicator& comm, const TensorsOf& mine) {
    const Tensor scattered = mine(kElements / kWatched), reduced = mine(kElements);
    comm.reduce_scatter(mine(kElements), scattered).wait();
    EXPECT_TRUE(is_all(scattered, 6));
    comm.reduce(mine(kElements), reduced, 1).wait();
    EXPECT_TRUE(is_all(reduced, comm.rank() == 1 ? 6 : static_cast<float>(comm.rank() + 1)));
  });
}

// The shards to gather fit into one buffer.
TEST(NodeCounters, OfWhatMovesNumbersCountAllRounds) {
  watch(2, 3, 5, [](Communicator& comm, const TensorsOf& mine) {
    const Tensor gathered = mine(kElements), swapped = mine(kElements), told = mine(kElements);
    comm.all_gather(mine(kElements / kWatched), gathered).wait();
    comm.all_to_all(mine(kElements), swapped).wait();
    comm.broadcast(told, 2).wait();
    for (int r = 0; r < kWatched; ++r)
      for (const Tensor& parts : {gathered, swapped}) {
        const Span span = part({0, kElements}, kWatched, r);
        EXPECT_TRUE(is_all(parts.slice(0, span.begin, span.end), static_cast<float>(r + 1)));
      }
    EXPECT_TRUE(is_all(told, 3));
  });
}

// Two ranks in one thread, of which rank 1 goes: what rank 0 sees then.
std::uint32_t departure_after(const std::function<void(std::unique_ptr<Communicator>)>& goes) {
  const ThreadHub hub(2);
  SharedAreas areas;
  bool tells_others = false;  // of what rank 1 has shown last
  const auto look = [&](const SharedAreas&, bool for_others) { tells_others = for_others; };
  const auto stays = make_communicator(std::make_unique<WatchedTransport>(hub.connect(0), areas));
  auto other = make_communicator(std::make_unique<WatchedTransport>(hub.connect(1), areas, look));
  EXPECT_EQ(area_of(areas, 1).left, NodeArea::here);
  try {
    goes(std::move(other));
  } catch (const Error&) {}
  EXPECT_EQ(area_of(areas, 0).left, NodeArea::here);
  EXPECT_TRUE(tells_others);
  return area_of(areas, 1).left;
}

TEST(NodeDeparture, IsInOrderWhereNothingIsWrong) {
  EXPECT_EQ(departure_after([](std::unique_ptr<Communicator>) {}), NodeArea::in_order);
}

TEST(NodeDeparture, IsAbruptWhereAReasonMayYetCome) {
  EXPECT_EQ(departure_after([](std::unique_ptr<Communicator> comm) {
              const std::unique_ptr<Communicator> own = std::move(comm);
              throw Error("out of paper");
            }),
            NodeArea::abruptly);
  EXPECT_EQ(departure_after([](std::unique_ptr<Communicator> comm) { comm->fail("out of paper"); }),
            NodeArea::abruptly);
  EXPECT_EQ(departure_after([](std::unique_ptr<Communicator> comm) {
              const Work work = comm->all_reduce(zeros(testing::context(1), {8}));
              comm.reset();
              EXPECT_THROW(work.wait(), Error);
            }),
            NodeArea::abruptly);
}

// Ranks in one thread: those that have asked are not named.
TEST(NodeTimeOut, NamesThoseWhoDidNotComeAndLetsTheOthersIn) {
  const std::tuple<int, std::vector<int>, std::string> cases[] = {
      {2, {}, "rank 1"}, {3, {}, "ranks 1, 2"}, {3, {1}, "rank 2"}, {3, {2}, "rank 1"}, {4, {2}, "ranks 1, 3"}};
  for (const bool shared : {true, false})
    for (const auto& [ranks, have_come, names] : cases) {
      const ThreadHub hub(ranks);
      SharedAreas areas;
      const CommunicatorOptions options{.shared_memory = shared, .timeout = std::chrono::milliseconds(5)};
      const auto of = [&](int rank) {
        return make_communicator(std::make_unique<WatchedTransport>(hub.connect(rank), areas), options);
      };
      const Tensor x = zeros(testing::context(1), {8});
      std::vector<std::pair<std::unique_ptr<Communicator>, Work>> others;
      for (const int rank : have_come) {
        others.emplace_back(of(rank), Work());
        others.back().second = others.back().first->all_reduce(zeros(testing::context(1), {8}));
      }
      const auto comm = of(0);
      const Work work = comm->all_reduce(x);
      if (shared) { EXPECT_EQ(area_of(areas, 0).closed, 0U); }
      const std::string told = error_of([&] { work.wait(); });
      EXPECT_EQ(told, concat("rank 0 gave up after 5 ms in all_reduce of 8 f32 (sum) (collective number 0): nothing "
                             "came from ",
                             names));
      if (shared) { EXPECT_EQ(area_of(areas, 0).closed, 1U) << "its tensors are its own again"; }
    }
}

// Three ranks in one thread. All ask for two sums; of the first one, which goes piece by piece, rank 2 alone shows rank
// 0 anything.
TEST(NodeTimeOut, NamesThoseWhoAreBehindInACollectiveOrInTheOneBefore) {
  for (const bool is_first : {true, false}) {
    const ThreadHub hub(kWatched);
    SharedAreas areas;
    std::vector<std::unique_ptr<Communicator>> comms;
    for (int rank = 0; rank < kWatched; ++rank)
      comms.push_back(make_communicator(std::make_unique<WatchedTransport>(hub.connect(rank), areas),
                                        {.timeout = std::chrono::milliseconds(5)}));
    std::vector<Work> large(kWatched), small(kWatched);
    for (const std::size_t rank : {1, 2, 0}) {
      large[rank] = comms[rank]->all_reduce(zeros(testing::context(1), {kElements}));
      small[rank] = comms[rank]->all_reduce(zeros(testing::context(1), {8}));
    }
    EXPECT_FALSE(large[2].has_finished());
    EXPECT_EQ(error_of([&] { (is_first ? large : small)[0].wait(); }),
              is_first ? "rank 0 gave up after 5 ms in all_reduce of 150000 f32 (sum) (collective number 0): nothing "
                         "came from rank 1"
                       : "rank 0 gave up after 5 ms in all_reduce of 8 f32 (sum) (collective number 1): nothing came "
                         "from ranks 1, 2");
  }
}

}  // namespace
}  // namespace keel
