// The design's large fixture: four layers of 1,024 by 1,024, 50 steps of 48 samples, in every stage and precision.

#include <gtest/gtest.h>

#include <mutex>

#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Curve {
  std::vector<double> losses;
  std::uint64_t weights = 0;
  bool operator==(const Curve&) const = default;
};

Curve curve_of(int ranks, int number, DType dtype, int micro_batches, bool adam = true) {
  Curve curve;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    LargeNet net;
    ShardedOptions options = stage(number);
    options.policy = PrecisionPolicy::of(dtype);
    options.micro_batches = micro_batches;
    Sharded engine(net, context, comm, adam ? make_adamw() : make_sgd(), options);
    std::vector<double> losses;
    for (int step = 0; step < 50; ++step) {
      const auto cut = [&](std::uint64_t seed, int micro) {
        const Tensor all = uniform_tensor(context, {kBatch, kLarge}, seed + static_cast<std::uint64_t>(step), dtype);
        const Span span = part(part({0, kBatch}, ranks, comm.rank()), micro_batches, micro);
        return all.slice(0, span.begin, span.end);
      };
      double sum = 0;
      for (int micro = 0; micro < micro_batches; ++micro) {
        const Tensor x = cut(100, micro);
        const Variable loss = mse_loss(net(x), Variable(cut(900, micro)));
        engine.backward(loss, {.weight = x.dim(0), .last = micro + 1 == micro_batches});
        sum += loss.value().item() * static_cast<double>(x.dim(0));
      }
      EXPECT_TRUE(engine.step(1e-4).get().taken);
      const Tensor total = tensor_of(context, {sum}, {1}, DType::f64);
      comm.all_reduce(total).wait();
      losses.push_back(total.item() / kBatch);
    }
    const std::uint64_t mine = engine.holds_parts() ? fingerprint(engine.weights()) : 0;
    const std::lock_guard lock(mutex);
    curve.weights += mine;
    if (comm.rank() == 0) curve.losses = losses;
  });
  return curve;
}

TEST(SlowZero, StagesAreBitwiseEqualOnTheLargeFixture) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int micro_batches : {1, 4}) {
        const Curve reference = curve_of(ranks, 0, dtype, micro_batches);
        for (const int number : {1, 2, 3})
          EXPECT_TRUE(curve_of(ranks, number, dtype, micro_batches) == reference)
              << ranks << " ranks, stage " << number << ", " << dtype << ", " << micro_batches << " micro-batches";
      }
}

TEST(SlowZero, AnyNumberOfRanksFollowsTheCurveOfOneOnTheLargeFixture) {
  for (const bool adam : {false, true}) {
    const Curve one = curve_of(1, 0, DType::f32, 1, adam);
    for (const int ranks : {2, 4, 8}) {
      const Curve several = curve_of(ranks, 2, DType::f32, 1, adam);
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(several.losses[i], one.losses[i], (adam ? 1e-4 : 1e-5) * one.losses[i]) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace keel
