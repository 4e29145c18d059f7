// Steps that are recorded (cuda_graph) of batches that differ in shape or in weight, on an emulated device.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/runtime/device_api.h"
#include "keel/trainer/config_keys.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Four rows of numbers, and what they count.
struct MarkedStep {
  std::int64_t length = 3;
  double marks = 4;
};
using MarkedRun = std::vector<MarkedStep>;
// A graph is recorded of the first, in the third step.
const MarkedRun kMarkedSteps = {{}, {}, {}, {}, {.length = 5}, {.marks = 2}, {}, {.marks = 0}, {}};
MarkedRun marked_steps = kMarkedSteps;  // of the runs that are made now
int marked_losses = 0;                  // how often the task was asked for one

class MarkedSteps final : public BatchSource {
 public:
  explicit MarkedSteps(Context host) : host_(std::move(host)) {}
  std::int64_t rows(std::int64_t) const override { return 4; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    const auto& [length, marks] = marked_steps[static_cast<std::size_t>(step)];
    const std::int64_t count = range.end - range.begin;
    Batch batch(host_, range.begin, count);
    batch.set("x", from_values(host_, drawn_numbers("x", 3, step, static_cast<std::size_t>(count * length)),
                               {count, length, 1}));
    batch.set_weight("marks", marks);
    return batch;
  }

 private:
  Context host_;
};

class Marked : public Task {
 public:
  explicit Marked(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override { return {.training = std::make_shared<MarkedSteps>(site_.host)}; }
  std::string why_not_recordable() const override { return ""; }
  Loss training_step(const Batch& batch, Forward& pass) override {
    ++marked_losses;
    return {mean(square(net_(input(batch, "x", pass)))), "marks"};
  }

 private:
  TaskSite site_;
  Linear net_{1, 1};
};

Config marked_run(const TemporaryFolder& place, const char* name, const char* graph) {
  static const auto keys = keys_of_task<Marked>("marked");
  return task_run(keys, R"(
batch: {global: 4, micro: 4}
optimizer: {type: SGD, lr: 0.1}
checkpoint: {every: 0}
device: emulated
strategy: fp32
threads: 1
)",
                  place, name, {graph, concat("steps=", marked_steps.size())});
}

// The first batch that counts is the one that is recorded, after two steps of its kind; others are computed.
TEST(RecordedSteps, AskTheTaskForNoLossButOfOtherBatches) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const MarkedStep none = {.marks = 0}, one = {.marks = 1}, longer = {.length = 5};
  const std::pair<MarkedRun, int> cases[] = {{MarkedRun(6), 3},
                                             {MarkedRun(6, one), 3},
                                             {{none, {}, {}, {}, {}, {}}, 4},
                                             {{{}, longer, {}, {}, {}, longer}, 5},
                                             {{one, {}, one, one, one, {}}, 5}};
  for (const auto& [steps, losses] : cases) {
    const TemporaryFolder place;
    marked_steps = steps;
    marked_losses = 0;
    TrainObserver silent;
    train(marked_run(place, "run", "cuda_graph=true"), silent);
    EXPECT_EQ(marked_losses, losses) << &steps - &cases[0].first;
  }
  marked_steps = kMarkedSteps;
}

TEST(RecordedSteps, HaveTheBitsOfOrdinaryOnesWhereBatchesDiffer) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const TemporaryFolder place;
  const auto run = [&](const char* name, const char* graph) { return marked_run(place, name, graph); };
  Recorder ordinary, recorded;
  train(run("ordinary", "cuda_graph=false"), ordinary);
  train(run("recorded", "cuda_graph=true"), recorded);
  ASSERT_EQ(ordinary.losses.size(), kMarkedSteps.size());
  for (std::size_t i = 0; i < kMarkedSteps.size(); ++i)
    if (kMarkedSteps[i].marks > 0) { EXPECT_EQ(recorded.losses.at(i), ordinary.losses[i]) << "step " << i + 1; }
  EXPECT_EQ(weights_of(run("recorded", "cuda_graph=true")), weights_of(run("ordinary", "cuda_graph=false")));
}

}  // namespace
}  // namespace keel
