// What the engine is told of a configuration, and which device a rank has.

#include "keel/trainer/assembly.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "keel/dist/comm/nccl_communicator.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/device_api.h"
#include "keel/trainer/device.h"
#include "keel/trainer/stack.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

ShardedOptions options_by(std::vector<std::string> settings, std::int64_t micro_batches = 1) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", std::move(settings));
  struct Nothing : Module {
    void visit(Visitor&) override {}
  } model;
  return engine_options(config, micro_batches, model);
}

TEST(EngineOptions, AreThoseOfTheConfigurationWithBucketsInBytes) {
  const ShardedOptions plain = options_by({"strategy=ddp-fp32"});
  EXPECT_EQ(plain.sharding.stage, 0);
  EXPECT_EQ(plain.sharding.bucket, 25 * 1024 * 1024);
  EXPECT_EQ(plain.sharding.first_bucket, 1024 * 1024);
  EXPECT_TRUE(plain.sharding.overlap);
  EXPECT_EQ(plain.micro_batches, 1);
  const ShardedOptions told = options_by(
      {"strategy=zero3-bf16", "sharding.bucket=3", "sharding.first_bucket=0.25", "sharding.overlap=false",
       "sharding.accumulation=each_backward", "sharding.reshard_after_forward=false", "sharding.prefetch=3",
       "sharding.persistence_threshold=77", "sharding.strict=true", "sharding.group=2", "clip=0.5", "seed=9"},
      4);
  EXPECT_EQ(told.sharding.stage, 3);
  EXPECT_EQ(told.sharding.bucket, 3 * 1024 * 1024);
  EXPECT_EQ(told.sharding.first_bucket, 256 * 1024);
  EXPECT_FALSE(told.sharding.overlap);
  EXPECT_EQ(told.sharding.accumulation, Accumulation::each_backward);
  EXPECT_FALSE(told.sharding.reshard_after_forward);
  EXPECT_EQ(told.sharding.prefetch, 3);
  EXPECT_EQ(told.sharding.persistence_threshold, 77);
  EXPECT_TRUE(told.sharding.strict);
  EXPECT_EQ(told.sharding.group, 2);
  EXPECT_EQ(told.policy.parameter, DType::bf16);
  EXPECT_EQ(told.clip, 0.5);
  EXPECT_EQ(told.seed, 9u);
  EXPECT_EQ(told.micro_batches, 4);
}

TEST(EngineOptions, ScaleLossesAsTheConfigurationSays) {
  const auto scale_by = [](const std::string& type, const std::string& precision) {
    std::vector<std::string> settings = {"strategy=ddp-" + precision, "loss_scale.type=" + type};
    if (type != "none") settings.push_back("loss_scale.initial=512");
    if (type == "dynamic" || type == "auto")
      settings.insert(settings.end(), {"loss_scale.growth=4", "loss_scale.interval=7"});
    return options_by(settings);
  };
  for (const char* precision : {"fp32", "fp16"}) {
    EXPECT_EQ(scale_by("none", precision).loss_scale, 1);
    EXPECT_EQ(scale_by("none", precision).scaling.growth, 1);
    EXPECT_EQ(scale_by("fixed", precision).loss_scale, 512);
    EXPECT_EQ(scale_by("fixed", precision).scaling.growth, 1);
    EXPECT_EQ(scale_by("dynamic", precision).loss_scale, 512);
    EXPECT_EQ(scale_by("dynamic", precision).scaling.growth, 4);
    EXPECT_EQ(scale_by("dynamic", precision).scaling.interval, 7);
  }
  EXPECT_EQ(scale_by("auto", "fp16").scaling.growth, 4);
  EXPECT_EQ(scale_by("auto", "fp16").loss_scale, 512);
  EXPECT_EQ(scale_by("auto", "fp32").scaling.growth, 1);
  EXPECT_EQ(scale_by("auto", "fp32").loss_scale, 1);
}

// What OMP_NUM_THREADS says meanwhile.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) {
    if (const char* const before = std::getenv("OMP_NUM_THREADS")) before_ = before;
    set(threads);
  }
  ~OmpThreads() {
    if (before_) ::setenv("OMP_NUM_THREADS", before_->c_str(), 1);
    else ::unsetenv("OMP_NUM_THREADS");
  }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;
  static void set(int threads) { ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1); }

 private:
  std::optional<std::string> before_;
};

// A thread for communication beside those that compute, where all of a node's ranks have a processor for it.
TEST(Background, IsThereWhereItIsAskedForOrAProcessorIsFreeOnAllRanks) {
  const TemporaryFolder place;
  const auto has_one = [&](int n, std::vector<std::string> settings) {
    const Config config = small_run(place, "run", std::move(settings));
    std::atomic<int> with = 0;
    run_ranks(n, [&](Communicator& ranks) { with += make_background(config, ranks) == nullptr ? 0 : 1; });
    EXPECT_TRUE(with == 0 || with == n);
    return with == n;
  };
  const OmpThreads processors(6);
  ASSERT_EQ(default_threads(), 6);
  for (const int n : {2, 3}) {
    for (int threads = 1; threads <= 3; ++threads)
      EXPECT_EQ(has_one(n, {concat("threads=", threads)}), (threads + 1) * n <= 6)
          << threads << " threads of each of " << n << " ranks";
    EXPECT_TRUE(has_one(n, {"sharding.progress=thread", "threads=64"}));
    EXPECT_FALSE(has_one(n, {"sharding.progress=poll", "threads=1"}));
    EXPECT_FALSE(has_one(n, {"threads=0"})) << "all processors compute";
  }
  EXPECT_FALSE(has_one(1, {"sharding.progress=thread"}));
}

TEST(Device, OfARankIsTheOneOfItsPlaceAmongThoseThatThereAre) {
  for (const int place : {0, 1, 5}) {
    EXPECT_EQ(choose_device("cpu", place), Device{});
    for (const DeviceType type : {DeviceType::cuda, DeviceType::emulated}) {
      const int count = count_devices(type).count;
      const std::string name = type == DeviceType::cuda ? "cuda" : "emulated";
      EXPECT_EQ(choose_device(name, place), (Device{type, count == 0 ? 0 : place % count})) << name;
      EXPECT_EQ(choose_device(name + ":3", place), (Device{type, 3}));
    }
    if (count_devices(DeviceType::cuda).count == 0) { EXPECT_EQ(choose_device("auto", place), Device{}); }
  }
}

TEST(MakeContext, SharesTheProcessorsAmongTheRanksOfANodeAndGivesOneRankWhatItWasTold) {
  const TemporaryFolder place;
  const int processors = static_cast<int>(std::thread::hardware_concurrency()), told = 2 * processors + 3;
  const auto threads_of = [&](int n, std::vector<std::string> settings) {
    const Config config = small_run(place, "run", std::move(settings));
    std::atomic<int> threads = 0;
    run_ranks(n, [&](Communicator& ranks) { threads = make_context(config, ranks, {}).threads(); });
    return threads.load();
  };
  const OmpThreads said(told);
  EXPECT_EQ(threads_of(1, {"threads=0"}), told);
  for (const int n : {2, 3}) EXPECT_EQ(threads_of(n, {"threads=0"}), std::max(1, processors / n)) << n;
  OmpThreads::set(1);
  for (const int n : {1, 2}) {
    EXPECT_EQ(threads_of(n, {"threads=0"}), 1) << n;
    EXPECT_EQ(threads_of(n, {"threads=3"}), 3) << n;
  }
}

// A number for each step until the schedule settles; a gibibyte of them is the most.
TEST(StepTable, HasTheStepsInWhichItsScheduleChangesAndRefusesTooMany) {
  const auto config = [](const char* scheduler, std::int64_t steps) {
    return parse_config(concat("steps: ", steps, "\ndata: {type: addition}\nscheduler: ", scheduler, "\n"), "c.yaml");
  };
  const Context context = Context::create({.threads = 1});
  const auto rows = [&](const char* scheduler, std::int64_t steps) {
    return make_curves(config(scheduler, steps), context).rates.numel();
  };
  EXPECT_EQ(rows("{type: constant, warmup: 0}", 1000000), 1);
  EXPECT_EQ(rows("{type: cosine, warmup: 3}", 50), 50);
  for (const int power : {27, 28, 29}) {
    const std::int64_t last = std::int64_t{1} << power;
    EXPECT_EQ(error_of([&] { rows("{type: cosine, warmup: 3}", last + 1); }),
              concat("steps: a schedule that changes for ", last,
                     " steps is too long to be tabulated; 134217728 are possible"));
  }
}

TEST(DeviceRanks, AreToldOnceWhyEverythingBetweenThemGoesThroughTheProcessorsMemory) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const TemporaryFolder place;
  const std::string why_not = why_no_nccl();
  for (const char* path : {"sharding.path=auto", "sharding.path=host"}) {
    if (why_not.empty() && std::string_view(path) == "sharding.path=auto") continue;  // NCCL needs other devices
    const Config config = small_run(place, "run", {"device=emulated", path});
    std::mutex mutex;
    std::string messages;
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = make_context(config, ranks, [&](LogLevel, std::string_view message) {
        const std::lock_guard lock(mutex);
        messages += concat(ranks.rank(), ": ", message, '\n');
      });
      DeviceCommunicator device_ranks(config, context, ranks);
      (*device_ranks).all_reduce(kernels::full(context.host(), {2}, 1)).wait();
      EXPECT_EQ((*device_ranks).traffic().sent(), 8) << path << ": for NCCL these are words beside its own";
    });
    EXPECT_EQ(messages, why_not.empty()
                            ? ""
                            : concat("0: between GPUs everything goes through the processors' memory: ", why_not, '\n'))
        << path;
  }
}

}  // namespace
}  // namespace keel
