// Collectives that a thread of their own goes on with.

#include "keel/dist/comm/background_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace testing;

// Without shared memory too: by messages.
constexpr bool kBoth[] = {true, false};

void on_background(int n, bool shared, const std::function<void(Communicator&)>& f) {
  run_ranks(n, [&](Communicator& ranks) { f(*make_background_communicator(ranks.split(0, ranks.rank()))); },
            {.shared_memory = shared});
}

TEST(Background, GivesTheSameResults) {
  for (const bool shared : kBoth)
    for (const int n : {1, 2, 3, 4})
      on_background(n, shared, [&](Communicator& ranks) {
        const Context context = testing::context(1);
        const auto group = ranks.split(ranks.rank() % 2, ranks.rank());
        std::vector<Tensor> sums;
        std::vector<Work> works;
        for (int i = 0; i < 20; ++i) {
          sums.push_back(kernels::full(context, {1000 + i}, ranks.rank() + 1));
          works.push_back((i % 3 == 0 ? *group : ranks).all_reduce(sums.back()));
        }
        // In another order on every rank.
        for (int i = 0; i < 20; ++i)
          works[static_cast<std::size_t>((i * (2 * ranks.rank() + 1) + ranks.rank()) % 20)].wait();
        for (Work& work : works) work.wait();
        int group_sum = 0;
        for (int r = ranks.rank() % 2; r < n; r += 2) group_sum += r + 1;
        for (int i = 0; i < 20; ++i)
          EXPECT_EQ(doubles(sums[static_cast<std::size_t>(i)])[999], i % 3 == 0 ? group_sum : n * (n + 1) / 2);
      });
}

TEST(Background, MayBeCalledByAnyThread) {
  run_ranks(2,
            [](Communicator& ranks) {
              const auto background = make_background_communicator(ranks.split(0, ranks.rank()));
              EXPECT_TRUE(background->allows_threads());
              EXPECT_EQ(background->rank(), ranks.rank());
              EXPECT_EQ(background->size(), 2);
              EXPECT_EQ(background->nodes(), (std::vector<int>{4, 7}));
              EXPECT_EQ(background->timeout(), std::chrono::seconds(77));
            },
            {.nodes = {4, 7}, .timeout = std::chrono::seconds(77)});
}

// Counts the collectives that a rank has seen the end of, by whichever thread.
class Counted : public Operation {
 public:
  Counted(Work work, std::atomic<int>& count) : work_(std::move(work)), count_(count) {}
  bool advance() override {
    const bool finished = work_.has_finished();
    if (finished && !counted_.exchange(true)) ++count_;
    return finished;
  }
  void wait() override { work_.wait(); }

 private:
  Work work_;
  std::atomic<int>& count_;
  std::atomic<bool> counted_ = false;
};

class CountingCommunicator : public CommunicatorDecorator {
 public:
  CountingCommunicator(Communicator& inner, std::atomic<int>& count) : CommunicatorDecorator(inner), count_(count) {}
  Work begin(const Collective& collective) override {
    return Work(std::make_shared<Counted>(inner_.begin(collective), count_));
  }

 private:
  std::atomic<int>& count_;
};

TEST(Background, GoesOnWhileTheCallerIsBusy) {
  for (const bool shared : kBoth)
    run_ranks(3,
              [&](Communicator& ranks) {
                std::atomic<int> ended = 0;
                const auto background =
                    make_background_communicator(std::make_unique<CountingCommunicator>(ranks, ended));
                const Tensor x = kernels::full(testing::context(1), {100'000}, 1);
                const Work work = background->all_reduce(x);
                // No call of the communicator from here until the collective has ended.
                for (int i = 0; ended == 0 && i < 20'000; ++i)
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                EXPECT_EQ(ended, 1);
                work.wait();
                EXPECT_EQ(doubles(x)[77'777], 3);
              },
              {.shared_memory = shared});
}

TEST(Background, TellsFailuresToWhoWaits) {
  for (const bool shared : kBoth) {
    std::atomic<int> heard = 0;
    std::latch split(3);  // a rank that is still splitting would hear of the failure there
    try {
      on_background(3, shared, [&](Communicator& ranks) {
        const Tensor x = kernels::full(testing::context(1), {1000}, 1);
        split.arrive_and_wait();
        if (ranks.rank() == 2) throw Error("no paper");
        try {
          ranks.all_reduce(x).wait();  // asking may tell, too, where the news came before
        } catch (const Error& error) {
          if (error.kind() == ErrorKind::peer) ++heard;
          throw;
        }
      });
      FAIL();
    } catch (const Error& error) { EXPECT_EQ(std::string(error.what()), "no paper"); }
    EXPECT_EQ(heard, 2);
  }
}

}  // namespace
}  // namespace keel
