// Micro-batches: however their gradients are added up over the ranks, every stage has the same bits.

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "keel/optim/catalog.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// A training that is drawn, and then done in each stage.
struct DrawnRun {
  int ranks = 2, steps = 3;
  std::string optimizer;
  ShardedOptions options;

  explicit DrawnRun(unsigned seed) {
    std::mt19937 draw(seed);
    const auto pick = [&](auto... choices) {
      const std::common_type_t<decltype(choices)...> all[] = {choices...};
      return all[draw() % sizeof...(choices)];
    };
    ranks = pick(2, 3, 4);
    optimizer = pick("AdamW", "SGD", "Adam8bit", "AdamW8bit", "Lion", "Adafactor", "LAMB", "RMSprop");
    options.micro_batches = pick(2, 3, 4);
    options.policy = PrecisionPolicy::of(pick(DType::f32, DType::bf16, DType::f16));
    if (pick(false, false, true)) options.policy.gradient = options.policy.parameter;
    if (pick(false, false, true)) options.wire = DType::f32;
    using Type = Compression::Type;
    options.compression.type = pick(Type::none, Type::none, Type::int8, Type::top_k, Type::power_sgd, Type::bf16);
    options.compression.fraction = 0.1;
    options.compression.rank = 2;
    options.clip = pick(0.0, 0.05);
    options.sharding.overlap = pick(true, false);
    options.sharding.accumulation = pick(Accumulation::deferred, Accumulation::each_backward);
    options.sharding.first_bucket = pick(1, 10'000, 1 << 20);
    options.sharding.prefetch = pick(0, 1, 3);
    options.sharding.persistence_threshold = pick(0, 4'500);
    if (options.policy.parameter == DType::f16) {
      options.scaling = LossScaling::dynamic();
      options.scaling.interval = 2;
      options.loss_scale = 256;
    }
    if (options.clip > 0 && pick(false, true)) {
      options.clip_by = ClipBy::value;
      options.clip = 1e-3;
    }
  }

  std::string description() const {
    return concat(optimizer, " on ", ranks, " ranks, ", options.micro_batches, " micro-batches, ",
                  name_of(options.sharding.accumulation), ", ", options.policy.parameter, ", gradients ",
                  options.policy.gradient, ", wire ", options.wire_dtype(), ", compression ",
                  options.compression.kind().name, ", clip ", options.clip,
                  options.clip_by == ClipBy::value ? " by value" : "");
  }

  // The weights in the end, on every rank, and whether steps were taken.
  std::pair<std::vector<double>, std::int64_t> train(int number) const {
    std::pair<std::vector<double>, std::int64_t> outcome;
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net(33, 3);
      ShardedOptions own = options;
      own.sharding.stage = number;
      Sharded engine(net, context, comm, make_optimizer(find_optimizer(optimizer), {}, 1), own);
      for (int step = 0; step < steps; ++step) {
        for (int micro = 0; micro < own.micro_batches; ++micro) {
          const auto seed = static_cast<std::uint64_t>(100 * step + 10 * micro + comm.rank());
          const Tensor x = uniform_tensor(context, {2 + micro + comm.rank(), 33}, seed, own.policy.parameter);
          const Tensor y = uniform_tensor(context, {2 + micro + comm.rank(), 33}, seed + 9'000, own.policy.parameter);
          engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0), .last = micro + 1 == own.micro_batches});
        }
        engine.step(0.3);  // a rate that lets the last bit of a gradient be seen
      }
      std::vector<double> weights = whole_values(engine);
      const std::int64_t taken = engine.steps_taken();
      const std::lock_guard lock(mutex);
      if (comm.rank() + 1 == comm.size()) outcome = {std::move(weights), taken};
    });
    return outcome;
  }
};

void expect_equal_stages(unsigned first_seed, unsigned count) {
  unsigned differ = 0;
  for (unsigned seed = first_seed; seed < first_seed + count; ++seed) {
    const DrawnRun run(seed);
    SCOPED_TRACE(concat("seed ", seed, ": ", run.description()));
    const auto reference = run.train(0);
    EXPECT_GT(reference.second, 0) << "no step was taken";
    for (const int number : {1, 2, 3}) EXPECT_TRUE(run.train(number) == reference) << "stage " << number;
    DrawnRun other = run;
    const bool is_deferred = run.options.sharding.accumulation == Accumulation::deferred;
    other.options.sharding.accumulation = is_deferred ? Accumulation::each_backward : Accumulation::deferred;
    differ += other.train(0) != reference ? 1 : 0;
  }
  EXPECT_GT(differ, count / 2) << "the order of additions is hardly to be seen in these weights";
}

TEST(Accumulation, GivesTheSameBitsInEveryStageForWhateverIsDrawn) { expect_equal_stages(1, 40); }

TEST(SlowAccumulation, GivesTheSameBitsInEveryStageForWhateverIsDrawn) { expect_equal_stages(1'000, 600); }

// Each micro-batch's sum is rounded to the wire dtype, so the two ways can differ by that much and no more.
TEST(Accumulation, AfterEachBackwardFollowsTheDeferredOne) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    DrawnRun run(1);
    run.ranks = 3;
    run.optimizer = "SGD";
    run.options = {};
    run.options.policy = PrecisionPolicy::of(dtype);
    run.options.micro_batches = 4;
    const auto deferred = run.train(0).first;
    run.options.sharding.accumulation = Accumulation::each_backward;
    const auto each = run.train(0).first;
    EXPECT_LT(relative_error(each, deferred), dtype == DType::f32 ? 1e-6 : 1e-2) << dtype;
    EXPECT_NE(each, deferred) << dtype << ": the same sums, although another was asked for";
  }
}

// With one micro-batch there is nothing to add up, and nothing to keep for it.
TEST(Accumulation, OfOneMicroBatchIsTheSameEitherWay) {
  for (const int number : {0, 1, 2, 3}) {
    std::size_t kept[2] = {};
    std::int64_t sent[2] = {};
    std::mutex mutex;
    for (const int way : {0, 1})
      run_ranks(3, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net;
        Sharded engine(net, context, comm, make_optimizer(find_optimizer("AdamW"), {}, 1),
                       way == 0 ? stage(number) : each_backward(number));
        engine.backward(mean(net(uniform_tensor(context, {2, kWidth}, 1))));
        EXPECT_TRUE(engine.step(1e-3).get().taken);
        for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
        const std::lock_guard lock(mutex);
        kept[way] += context.memory()[Purpose::gradient].peak;
        sent[way] += engine.data_traffic().sent();
      });
    EXPECT_EQ(kept[0], kept[1]) << "stage " << number;
    EXPECT_EQ(sent[0], sent[1]) << "stage " << number;
  }
}

}  // namespace
}  // namespace keel
