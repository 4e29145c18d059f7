// A rank that fails in a step: what the others are told.

#include <gtest/gtest.h>

#include <latch>
#include <mutex>
#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// One rank fails in this step, once all have come there.
struct Failure {
  std::int64_t step;
  std::latch all;
};
Failure* failure_of_test = nullptr;
thread_local int losses_of_rank = 0;
thread_local bool fails_in_test = false;

class WithoutMilk : public Task {
 public:
  explicit WithoutMilk(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    return make_data(site_,
                     made_dataset(24, "rows",
                                  [](std::int64_t i) {
                                    return Example().set("x", Numbers{{2}, {1, static_cast<float>(i) / 8}});
                                  }),
                     0, stack());
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    if (++losses_of_rank == failure_of_test->step) {
      failure_of_test->all.arrive_and_wait();
      KEEL_CHECK(!fails_in_test, "out of milk");
    }
    return mean(square(net_(input(batch, "x", pass))));
  }

 private:
  TaskSite site_;
  Linear net_{2, 1};
};

// In a session's first step ranks wait for each other to compare their losses, and later to add up gradients.
TEST(FailingRank, EndsTheOthersInTheStepThatTheyWereIn) {
  const TemporaryFolder place;
  static const auto keys = keys_of_task<WithoutMilk>("without_milk");
  for (const int n : {2, 3})
    for (const std::int64_t step : {1, 3}) {
      const Config config = task_run(keys, "batch: {global: 6, micro: 6}\ncheckpoint: {every: 0}\nthreads: 1\n", place,
                                     concat("run", n, step), {"steps=4", "strategy=ddp-fp32"});
      Failure failure{step, std::latch(n)};
      failure_of_test = &failure;
      std::mutex mutex;
      std::vector<std::string> told;  // to the others
      const std::string why = error_of([&] {
        run_ranks(n, [&](Communicator& ranks) {
          losses_of_rank = 0;
          fails_in_test = ranks.rank() == 1;
          TrainObserver silent;
          const std::string mine = error_of([&] { train(config, silent, ranks); });
          const std::lock_guard lock(mutex);
          if (ranks.rank() != 1) told.push_back(mine);
          throw Error(MessageLines{mine});
        });
      });
      EXPECT_EQ(why, "out of milk");
      ASSERT_EQ(std::ssize(told), n - 1);
      for (const std::string& each : told) {
        EXPECT_TRUE(each.starts_with("rank 1 failed: out of milk; rank ")) << each;
        EXPECT_TRUE(each.ends_with(concat(", step ", step, ")"))) << each;
      }
    }
}

}  // namespace
}  // namespace keel
