// News of failures for a second thread of each rank, over any transport that lets one call.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "keel/dist/comm/communicator.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

#define KEEL_NEEDS_ALARM(alarm) \
  if ((alarm) == nullptr) GTEST_SKIP() << "these ranks are for the thread that calls them"

// Calls listen(alarm) again and again in a thread of its own, until it goes.
class Listener {
 public:
  template <class F>
  Listener(std::shared_ptr<Alarm> alarm, const F& listen)
      : thread_([alarm = std::move(alarm), listen](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            listen(*alarm);
            std::this_thread::yield();
          }
        }) {}

 private:
  std::jthread thread_;
};

TEST(Alarm, MayBeAskedWhileCollectivesGoOn) {
  KEEL_NEEDS_RANKS(3);
  on_ranks(3, [](Communicator& comm) {
    const auto alarm = comm.alarm();
    KEEL_NEEDS_ALARM(alarm);
    std::atomic<int> questions = 0;
    bool goes_on = true;
    const Listener listener(alarm, [&](Alarm& asked) {
      EXPECT_EQ(asked.heard(), "");
      ++questions;
    });
    const Context cpu = context(1);
    for (int round = 0; goes_on; ++round) {
      const auto group = comm.split(comm.rank() == 2 ? 1 : 0, comm.rank());
      for (const std::int64_t count : {1, 1'000, 100'000}) {
        const Tensor x = tensor_of(cpu, std::vector<double>(static_cast<std::size_t>(count), comm.rank() + 1), {count});
        const Work first = comm.all_reduce(x), second = group->all_reduce(zeros(cpu, {count}));
        second.wait();
        first.wait();
        EXPECT_EQ(doubles(x), std::vector<double>(static_cast<std::size_t>(count), 6));
      }
      const Tensor wanting = tensor_of(cpu, {round < 10 || questions < 20 ? 1.0 : 0.0}, {1});
      comm.all_reduce(wanting, CombineOp::maximum).wait();
      goes_on = doubles(wanting)[0] == 1;  // on all ranks, or on none
    }
  });
}

TEST(Alarm, IsRaisedByARankThatFails) {
  KEEL_NEEDS_RANKS(3);
  on_ranks(3, [](Communicator& comm) {
    const auto alarm = comm.alarm();
    KEEL_NEEDS_ALARM(alarm);
    comm.barrier();
    if (comm.rank() == 1) comm.fail("out of paper");
    std::thread([&] {
      std::string reason;
      while ((reason = alarm->heard()).empty()) std::this_thread::yield();
      EXPECT_EQ(reason, "out of paper");
    }).join();
  });
}

TEST(Alarm, RaisedByAnotherThreadReachesAllWhoWait) {
  KEEL_NEEDS_RANKS(3);
  const auto told = messages(3, [](Communicator& comm) {
    const auto alarm = comm.alarm();
    KEEL_NEEDS_ALARM(alarm);
    comm.barrier();
    std::jthread other;
    if (comm.rank() == 1) other = std::jthread([&] { alarm->raise("the device of rank 1 is lost"); });
    for (;;) comm.barrier();
  });
  for (const std::string& text : told)
    if (!text.empty()) { EXPECT_TRUE(is_heard(text, "the device of rank 1 is lost")); }
}

}  // namespace
}  // namespace keel
