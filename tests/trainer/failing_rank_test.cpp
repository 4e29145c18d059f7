// A rank that fails in a step: what the others are told.

#include <gtest/gtest.h>

#include <string>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

thread_local int losses_until_failure = -1;  // of this rank; negative: it does not fail

class Failing : public Task {
 public:
  explicit Failing(const TaskSite& site) : site_(site) {}
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
    KEEL_CHECK(losses_until_failure-- != 0, "out of milk");
    return mean(square(net_(input(batch, "x", pass))));
  }

 private:
  TaskSite site_;
  Linear net_{2, 1};
};

// In a session's first step ranks wait for each other to compare their losses, and later to add up gradients.
TEST(FailingRank, EndsTheOthersInTheStepThatTheyWereIn) {
  const TemporaryFolder place;
  static const auto keys = keys_of_task<Failing>("failing");
  for (const int n : {2, 3})
    for (const int step : {1, 3}) {
      const Config config = task_run(keys, "batch: {global: 6, micro: 6}\ncheckpoint: {every: 0}\nthreads: 1\n", place,
                                     concat("run", n, step), {"steps=4", "strategy=ddp-fp32"});
      std::vector<std::string> told(static_cast<std::size_t>(n));
      run_ranks(n, [&](Communicator& ranks) {
        losses_until_failure = ranks.rank() == 1 ? step - 1 : -1;
        TrainObserver silent;
        told[static_cast<std::size_t>(ranks.rank())] = error_of([&] { train(config, silent, ranks); });
      });
      EXPECT_EQ(told[1], "out of milk");
      for (int rank = 0; rank < n; rank += 2) {
        const std::string& text = told[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(text.starts_with(concat("rank 1 failed: out of milk; rank ", rank, " was in "))) << text;
        EXPECT_TRUE(text.ends_with(concat(", step ", step, ")"))) << text;
      }
    }
}

}  // namespace
}  // namespace keel
