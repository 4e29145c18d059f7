// How far a collective goes as soon as it is asked for, before anybody waits for it.

#include <gtest/gtest.h>

#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Calls {
  int sends = 0, announcements = 0, checks_of_thread = 0;
};

class CountedTransport : public ForwardingTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, Calls& calls)
      : ForwardingTransport(std::move(inner)), calls_(calls) {}
  std::unique_ptr<Message> send(int to, std::uint64_t tag, const void* data, std::size_t bytes) override {
    ++calls_.sends;
    return ForwardingTransport::send(to, tag, data, bytes);
  }
  void announce(bool for_others) override {
    ++calls_.announcements;
    ForwardingTransport::announce(for_others);
  }
  void check_thread() const override { ++calls_.checks_of_thread; }

 private:
  Calls& calls_;
};

Tensor full_of(double value) { return tensor_of(testing::context(1), {value, value}, {2}); }

std::unique_ptr<Communicator> counted_end(const ThreadHub& hub, int rank, Calls& calls, bool shared_memory = true) {
  return make_communicator(std::make_unique<CountedTransport>(hub.connect(rank), calls),
                           {.shared_memory = shared_memory});
}

// 8 KiB together, whatever their number.
TEST(CollectiveAhead, SendsWithItsSignaturesWhatIsSmall) {
  for (const int n : {2, 3, 5})
    for (const int more : {-1, 0, 1}) {
      const int peers = n - 1;
      const std::int64_t each = 2'048 / peers + more;
      const ThreadHub hub(n);
      Calls calls;
      const auto comm = counted_end(hub, 0, calls, false);
      const Context context = testing::context(1);
      const Work work = comm->all_to_all(zeros(context, {n * each}), zeros(context, {n * each}));
      EXPECT_EQ(calls.sends, more > 0 ? peers : 2 * peers) << each << " elements for each of " << n;
    }
}

// Two ranks in one thread: the second one has all that it needs.
TEST(CollectiveAhead, EndsWithTheLastRankThatAsksForIt) {
  const ThreadHub hub(2);
  Calls first_calls, last_calls;
  const auto first = counted_end(hub, 0, first_calls), last = counted_end(hub, 1, last_calls);
  for (int times = 1; times <= 3; ++times) {
    const Tensor x = full_of(times), y = full_of(2 * times);
    const Work begun = first->all_reduce(x);
    EXPECT_EQ(first_calls.announcements, 2 * times - 1) << "it has asked";
    const Work ended = last->all_reduce(y);
    EXPECT_EQ(last_calls.announcements, 2 * times) << "it has asked, and is done";
    begun.wait();
    EXPECT_EQ(first_calls.announcements, 2 * times);
    EXPECT_EQ(doubles(x), doubles(y));
    EXPECT_EQ(doubles(x), (std::vector<double>{3.0 * times, 3.0 * times}));
  }
}

TEST(CollectiveAhead, ThatHasEndedMayBeAskedByAnyThread) {
  const ThreadHub hub(2);
  Calls calls, others;
  const auto comm = counted_end(hub, 0, calls), other = counted_end(hub, 1, others);
  const Work work = comm->all_reduce(full_of(1)), theirs = other->all_reduce(full_of(2));
  work.wait();
  const int before = calls.checks_of_thread;
  EXPECT_GT(before, 0);
  work.wait();
  EXPECT_TRUE(work.has_finished());
  EXPECT_EQ(calls.checks_of_thread, before);
}

}  // namespace
}  // namespace keel
