// Bytes and memory of the ZeRO stages, to the byte.

#include <gtest/gtest.h>

#include <mutex>

#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Measured {
  std::int64_t sent = 0, control = 0;  // bytes of one rank in one step
  std::size_t state = 0;               // bytes of parameters, gradients and optimizer state of one rank
  std::size_t buckets_peak = 0;        // of what is whole for a while
  std::vector<std::int64_t> buckets;   // bytes of gradients
};

Measured measure(int ranks, ShardedOptions options, int micro_batches = 1, DType dtype = DType::bf16) {
  options.policy = PrecisionPolicy::of(dtype);
  if (micro_batches == 1) options.policy.gradient = dtype;
  options.micro_batches = micro_batches;
  Measured measured;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    LargeNet net;
    Sharded engine(net, context, comm, make_adamw(), options);
    const MemoryReport memory = context.memory();
    const auto kept = [&](Purpose purpose) { return memory.by_purpose[static_cast<std::size_t>(purpose)].current; };
    const std::size_t state = kept(Purpose::parameter) + kept(Purpose::gradient) + kept(Purpose::optimizer);
    const auto run = [&] {
      for (int micro = 0; micro < micro_batches; ++micro) {
        const Variable loss = mean(net(uniform_tensor(context, {2, kLarge}, 5, dtype)));
        engine.backward(loss, {.last = micro + 1 == micro_batches});
      }
      engine.step(1e-3);
      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
    };
    run();
    const std::int64_t sent = comm.traffic().sent(), control = engine.control_traffic().sent();
    context.allocator().reset_peaks();
    run();
    const std::lock_guard lock(mutex);
    const Measured mine{.sent = comm.traffic().sent() - sent,
                        .control = engine.control_traffic().sent() - control,
                        .state = state,
                        .buckets_peak = context.memory().by_purpose[static_cast<std::size_t>(Purpose::bucket)].peak,
                        .buckets = {}};
    if (measured.sent != 0) {
      EXPECT_EQ(mine.sent, measured.sent) << "ranks send the same";
      EXPECT_EQ(mine.state, measured.state) << "ranks keep the same";
    }
    measured = mine;
    for (const auto& bucket : engine.buckets()) {
      measured.buckets.push_back(0);
      for (const std::size_t unit : bucket) measured.buckets.back() += engine.units()[unit]->split().gradient_bytes();
    }
  });
  return measured;
}

TEST(ZeroBytes, OfFlagNormAndTokensAreTwentyFourForEachRank) {
  for (const int number : {0, 1, 2, 3}) EXPECT_EQ(measure(4, stage(number)).control, 3 * 24) << "stage " << number;
}

TEST(ZeroBytes, AreThoseOfTheFormulas) {
  for (const int number : {0, 1, 2}) {
    EXPECT_EQ(measure(4, stage(number)).sent, 12'595'200) << "stage " << number;
    EXPECT_EQ(measure(3, stage(number)).sent, 11'198'464) << "stage " << number;
    EXPECT_EQ(measure(8, stage(number)).sent, 14'694'400) << "stage " << number;
  }
  EXPECT_EQ(measure(4, stage(3)).sent, 18'892'800);
  EXPECT_EQ(measure(3, stage(3)).sent, 16'797'696);
  EXPECT_EQ(measure(8, stage(3)).sent, 22'041'600);
  ShardedOptions kept = stage(3);
  kept.sharding.keep_last_unit = true;
  EXPECT_EQ(measure(4, kept).sent, 17'318'400);
}

TEST(ZeroBytes, OfFourMicroBatchesAreThoseOfTheFormulas) {
  for (const int number : {0, 1, 2}) EXPECT_EQ(measure(4, stage(number), 4).sent, 12'595'200) << "stage " << number;
  EXPECT_EQ(measure(4, stage(3), 4).sent, 56'678'400);
  // 6,297,600 bytes of gradients four times, and of parameters, or the sums in fp32.
  EXPECT_EQ(measure(4, each_backward(0), 4).sent, 37'785'600);
  for (const int number : {1, 2})
    EXPECT_EQ(measure(4, each_backward(number), 4).sent, 31'488'000) << "stage " << number;
  EXPECT_EQ(measure(4, each_backward(3), 4).sent, 75'571'200);
}

TEST(ZeroBytes, OfAnFp32WireAreTwiceThoseOfTheGradients) {
  for (const int number : {1, 2}) {
    ShardedOptions options = stage(number);
    options.wire = DType::f32;
    EXPECT_EQ(measure(4, options).sent, 18'892'800) << "stage " << number;
  }
}

// Acceptance check 9.
TEST(ZeroMemory, IsThatOfTheFormulas) {
  const std::size_t four[] = {67'174'400, 29'388'800, 23'091'200, 16'793'600};
  const std::size_t three[] = {67'190'784, 33'595'392, 27'996'160, 22'396'928};
  const std::size_t eight[] = {67'174'400, 23'091'200, 15'744'000, 8'396'800};
  for (const int number : {0, 1, 2, 3}) {
    EXPECT_EQ(measure(4, stage(number)).state, four[number]) << "stage " << number;
    EXPECT_EQ(measure(3, stage(number)).state, three[number]) << "stage " << number;
    EXPECT_EQ(measure(8, stage(number)).state, eight[number]) << "stage " << number;
  }
}

// At prefetch 1: two units of whole parameters, one of whole gradients, and the one that is being summed.
TEST(ZeroMemory, OfWhatIsWholeForAWhileIsThreeUnitsInStageThree) {
  const std::size_t unit = 2'099'200;
  EXPECT_LE(measure(4, stage(3)).buckets_peak, 4 * unit);
}

TEST(Buckets, CloseWhenTheirSizeReachesTheLimit) {
  EXPECT_EQ(measure(2, stage(0), 1, DType::f32).buckets, (std::vector<std::int64_t>{4'198'400, 12'595'200}));
}

}  // namespace
}  // namespace keel
