// Batches of a run on a device: made in pinned memory, from which they travel beside the device's work.

#include <atomic>
#include <memory>

#include "keel/autograd/functions.h"
#include "keel/data/prefetch.h"
#include "keel/data/sampler.h"
#include "keel/nn/layers.h"
#include "tests/cuda/device.h"
#include "tests/trainer/small_task.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/machine.h"
#endif

namespace keel {
namespace {

using namespace keel::testing;

// Whether a GPU can read the memory while the host goes on. Only the emulator tells.
bool is_pinned([[maybe_unused]] const Tensor& x) {
#ifdef KEEL_EMULATED
  return emulation::Machine::get().is_pinned(x.raw());
#else
  return true;
#endif
}

DatasetPtr slope_examples(std::int64_t size) {
  return made_dataset(size, "slopes", [](std::int64_t i) {
    const auto x = static_cast<float>(i % 7) / 7;
    Example example;
    example.set("place", Numbers{{2}, {x, 1 - x}});
    example.set("height", Numbers{{1}, {2 * x}});
    return example;
  });
}

// Batches that a source has made, and those of them with anything outside of pinned memory.
struct SeenBatches {
  std::atomic<std::int64_t> count = 0, pageable = 0;
};

class SeenSource : public BatchSource {
 public:
  SeenSource(std::shared_ptr<const BatchSource> source, SeenBatches& seen) : source_(std::move(source)), seen_(seen) {}
  std::int64_t steps() const override { return source_->steps(); }
  double steps_per_epoch() const override { return source_->steps_per_epoch(); }
  std::int64_t rows(std::int64_t step) const override { return source_->rows(step); }
  std::string fingerprint() const override { return source_->fingerprint(); }
  Batch load(std::int64_t step, Rows range) const override {
    Batch batch = source_->load(step, range);
    bool all = is_pinned(batch.sample_ids());
    for (const auto& [name, values] : batch.fields()) all = all && is_pinned(values);
    ++seen_.count;
    if (!all) ++seen_.pageable;
    return batch;
  }

 private:
  std::shared_ptr<const BatchSource> source_;
  SeenBatches& seen_;
};

SeenBatches& seen_in_training() {
  static SeenBatches seen;
  return seen;
}

class SlopeFit : public Task {
 public:
  explicit SlopeFit(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    Data data = make_data(site_, slope_examples(40), 0.2, stack());
    data.training = std::make_shared<SeenSource>(data.training, seen_in_training());
    data.validation[0].source = std::make_shared<SeenSource>(data.validation[0].source, seen_in_training());
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mse_loss(net_(input(batch, "place", pass), pass), input(batch, "height", pass));
  }

 private:
  TaskSite site_;
  Mlp net_{{2, 8, 1}, ActivationKind::tanh};
};

KEEL_DEVICE_SUITE(LoaderOnDevice);

TEST_P(LoaderOnDevice, MakesEveryBatchOfARunInPinnedMemory) {
  const TemporaryFolder place;
  SeenBatches& seen = seen_in_training();
  for (const int workers : {1, 3}) {
    seen.count = seen.pageable = 0;
    Recorder told;
    train(task_run(keys_of_task<SlopeFit>("slope_fit"),
                   "steps: 6\nbatch: {global: 8, micro: 4}\neval: {every: 3}\nthreads: 1\nkernels: plain\n", place,
                   concat("run", workers), {concat("device=", kTestDevice), concat("data.workers=", workers)}),
          told);
    EXPECT_GE(seen.count, 6 * 2 + 2);
    EXPECT_EQ(seen.pageable, 0) << workers << " workers";
  }
}

// The negative of the law above: the processor's own memory is pageable.
TEST_P(LoaderOnDevice, FindsMemoryPageableThatIsNotTheDevices) {
#ifndef KEEL_EMULATED
  GTEST_SKIP() << "only the emulator tells pinned memory from other memory";
#endif
  SeenBatches seen;
  for (const Context& memory : {host, device.host()}) {
    const SeenSource source(make_source(memory, slope_examples(8), sequential(8, 4), stack()), seen);
    (void)source.load_all(0);
  }
  EXPECT_EQ(seen.count, 2);
  EXPECT_EQ(seen.pageable, 1);
}

// Batches that wait, and one at hand of each worker and of who takes them; each in pieces of the allocator's size.
TEST_P(LoaderOnDevice, KeepsAFewBatchesOfPinnedMemoryAndGivesThemBack) {
  constexpr std::int64_t kRows = 64, kSteps = 40;
  constexpr int kDepth = 2, kWorkers = 2;
  const std::size_t before = device.host().memory().total.current;
  SeenBatches seen;
  const auto source = std::make_shared<SeenSource>(
      make_source(device.host(), slope_examples(kRows * kSteps), sequential(kRows * kSteps, kRows), stack()), seen);
  std::size_t batch_bytes = 0;
  {
    const Batch batch = source->load_all(0);
    batch_bytes = device.host().memory().total.current - before;
    EXPECT_GE(batch_bytes, static_cast<std::size_t>(kRows) * (3 * sizeof(float) + sizeof(std::int64_t)));
  }
  device.host().allocator().reset_peaks();
  {
    PrefetchLoader loader(source, 0, {}, kDepth, device, kWorkers);
    std::int64_t steps = 0;
    while (const std::optional<Batch> batch = loader.next()) {
      EXPECT_EQ((*batch)["place"].device(), kTestDevice);
      ++steps;
    }
    EXPECT_EQ(steps, kSteps);
  }
  device.synchronize();
  EXPECT_LE(device.host().memory().total.peak - before, (kDepth + kWorkers + 1) * batch_bytes);
  EXPECT_EQ(device.host().memory().total.current, before);
}

}  // namespace
}  // namespace keel
