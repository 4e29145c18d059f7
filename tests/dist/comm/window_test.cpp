// Which way the tensors of processes go: those in memory that all ranks see are read where they lie.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/schedule.h"
#include "keel/dist/comm/thread_transport.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Memory that all ranks see, by the number of the request.
class Board {
 public:
  SharedAreas areas(int request, int ranks, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kPage = 4096;
    const std::size_t each = (bytes + kPage - 1) / kPage * kPage, all = each * static_cast<std::size_t>(ranks);
    std::shared_ptr<void>& memory = memory_[request];
    if (!memory) {
      memory = std::shared_ptr<void>(std::aligned_alloc(kPage, all), std::free);
      std::memset(memory.get(), 0, all);
    }
    SharedAreas shared{.owner = memory};
    for (int r = 0; r < ranks; ++r)
      shared.areas.push_back(static_cast<std::byte*>(memory.get()) + each * static_cast<std::size_t>(r));
    return shared;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::shared_ptr<void>> memory_;
};

// Between processes, as it says. Counts what this rank tells the others of shared memory: that it has asked and that it
// is done, and of each round of pieces that it has shown, added and taken one.
class Processes : public ForwardingTransport {
 public:
  Processes(std::unique_ptr<Transport> inner, Board& board, int& announcements, bool one_address_space = false)
      : ForwardingTransport(std::move(inner)),
        board_(board),
        announcements_(announcements),
        one_address_space_(one_address_space) {}
  std::optional<SharedAreas> share(std::size_t bytes) override {
    SharedAreas areas = board_.areas(requests_++, size(), bytes);
    areas.one_address_space = one_address_space_;
    return areas;
  }
  void announce(bool for_others) override {
    ++announcements_;
    ForwardingTransport::announce(for_others);
  }

 private:
  Board& board_;
  int& announcements_;
  bool one_address_space_;
  int requests_ = 0;
};

TEST(Windows, AreReadInPlaceWhereTheTensorsThatOthersTouchLieInThem) {
  constexpr std::int64_t kCount = 12'000;
  for (const int n : {2, 3}) {
    ThreadHub hub(n);
    Board board;
    run_ranks(n, [&](Communicator& ranks) {
      int announcements = 0;
      const auto comm = make_communicator(std::make_unique<Processes>(hub.connect(ranks.rank()), board, announcements));
      const Context context = testing::context(1);
      const Tensor windows[] = {comm->allocate(context, kCount, DType::f32, Purpose::workspace),
                                comm->allocate(context, kCount, DType::f32, Purpose::workspace)};
      const Tensor own[] = {zeros(context, {kCount}), zeros(context, {kCount})};
      // Rank 0 alone may have tensors elsewhere.
      const auto placed = [&](int which, bool seen) { return seen || comm->rank() != 0 ? windows[which] : own[which]; };
      const auto is_direct = [&](auto&& begin) {
        const int before = announcements;
        begin().wait();
        return announcements - before == 2;
      };
      const Span shard = part({0, kCount}, n, comm->rank());
      for (const bool seen : {true, false}) {
        const Tensor x = placed(0, seen);
        EXPECT_EQ(is_direct([&] { return comm->all_reduce(x); }), seen);
        EXPECT_EQ(is_direct([&] { return comm->broadcast(x, n - 1); }), seen);
        for (const bool result_seen : {true, false}) {  // which no other rank touches
          const Tensor y = placed(1, result_seen);
          EXPECT_EQ(is_direct([&] { return comm->reduce_scatter(x, y.slice(0, 0, shard.count())); }), seen);
          EXPECT_EQ(is_direct([&] { return comm->all_gather(x.slice(0, 0, shard.count()), y); }), seen);
          EXPECT_EQ(is_direct([&] { return comm->all_to_all(x, y); }), seen);
        }
      }
    });
  }
}

// Whose tensors all ranks touch, or the root's alone.
TEST(Windows, OfARootAloneAreReadInPlaceInOneAddressSpaceAlone) {
  constexpr std::int64_t kCount = 12'000;
  for (const int n : {2, 3})
    for (const bool one_address_space : {true, false}) {
      ThreadHub hub(n);
      Board board;
      run_ranks(n, [&](Communicator& ranks) {
        int announcements = 0;
        const auto comm = make_communicator(
            std::make_unique<Processes>(hub.connect(ranks.rank()), board, announcements, one_address_space));
        const Context context = testing::context(1);
        const Tensor x = comm->allocate(context, kCount, DType::f32, Purpose::workspace),
                     y = comm->allocate(context, kCount, DType::f32, Purpose::workspace);
        const auto is_direct = [&](const Work& work) {
          work.wait();
          return std::exchange(announcements, 0) == 2;
        };
        announcements = 0;
        for (int root = 0; root < n; ++root) {
          EXPECT_TRUE(is_direct(comm->broadcast(x, root)));
          EXPECT_TRUE(is_direct(comm->gather(x.slice(0, 0, kCount / n), y, root)));
          EXPECT_EQ(is_direct(comm->scatter(x, y.slice(0, 0, kCount / n), root)), one_address_space);
          EXPECT_EQ(is_direct(comm->reduce(x, y, root)), one_address_space);
        }
      });
    }
}

TEST(Windows, AreCountedAsMemoryOfWhatTheyAreFor) {
  constexpr std::int64_t kCount = 12'000;
  const ThreadHub hub(2);
  Board board;
  int announcements = 0;
  const auto comm = make_communicator(std::make_unique<Processes>(hub.connect(0), board, announcements));
  const Context context = Context::create({.threads = 1});
  const auto held = [&] { return context.memory()[Purpose::gradient].current; };
  {
    const Tensor window = comm->allocate(context, kCount, DType::f32, Purpose::gradient);
    EXPECT_EQ(held(), kCount * sizeof(float));
  }
  EXPECT_EQ(held(), 0U);
}

}  // namespace
}  // namespace keel
