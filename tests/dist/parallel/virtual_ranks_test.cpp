// Virtual ranks: one training, bit by bit, whoever computes them.

#include "keel/dist/parallel/engine_rules.h"

#include <gtest/gtest.h>

#include <bit>
#include <mutex>

#include "keel/dist/parallel/partial_sums.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/observing_net.h"
#include "tests/dist/parallel/rows_support.h"
#include "tests/dist/parallel/virtual_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using Maker = std::function<std::unique_ptr<const Optimizer>()>;

Maker by(const ElementwiseOptions& options) {
  return [options] { return make_elementwise("one", options); };
}
const Maker kAdamW = by({.settings = AdamSettings{.decoupled = true}, .weight_decay = 0.1}),
            kMuon = by({.settings = MuonSettings{}, .weight_decay = 0.1});

// The bits that `ranks` ranks end with, which all of them have.
std::vector<double> bits_by(int ranks, const Maker& optimizer, const ShardedOptions& options) {
  std::vector<double> bits;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const std::vector<double> mine = trained_in_turn(comm, optimizer(), options);
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(mine.empty());
    if (bits.empty()) bits = mine;
    EXPECT_EQ(bits, mine);
  });
  return bits;
}

TEST(VirtualRanks, GiveOneTrainingToAnyNumberOfRanksInEveryStage) {
  for (const auto& [optimizer, name] : {std::pair(kAdamW, "AdamW"), std::pair(kMuon, "Muon")})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int micros : {1, 2}) {
        const std::vector<double> reference = bits_by(8, optimizer, of_virtual_ranks(0, 8, micros, dtype));
        for (const int ranks : {1, 2, 4, 8})
          for (const int stage : {0, 1, 2, 3}) {
            if (ranks == 1 && stage > 0) continue;
            EXPECT_EQ(bits_by(ranks, optimizer, of_virtual_ranks(stage, 8, micros, dtype)), reference)
                << name << ' ' << dtype << ", " << micros << " micro-batches, stage " << stage << ", " << ranks;
          }
      }
}

TEST(VirtualRanks, GiveItToOptimizersThatMeasureWholeParametersKeepBlocksOrAverage) {
  const std::pair<const char*, Maker> all[] = {
      {"Lamb", by({.settings = LambSettings{}, .weight_decay = 0.1})},
      {"Adafactor", by({.settings = AdafactorSettings{}})},
      {"AdamW8bit", by({.settings = AdamSettings{.decoupled = true, .min_8bit_size = 4096}})},
      {"ScheduleFree", by({.settings = ScheduleFreeSettings{}})},
      {"SGD", [] { return make_sgd(); }},
  };
  for (const auto& [name, optimizer] : all) {
    const auto weights_by = [&, optimizer = optimizer](int ranks, int stage) {
      std::vector<double> bits = bits_by(ranks, optimizer, of_virtual_ranks(stage, 4, 1, DType::f32));
      bits.resize(kBitsOfWeights);  // some states are kept by several ranks
      return bits;
    };
    const std::vector<double> reference = weights_by(4, 0);
    for (const auto& [ranks, stage] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 3), std::pair(4, 1)})
      EXPECT_EQ(weights_by(ranks, stage), reference) << name << ", stage " << stage << ", " << ranks;
  }
}

TEST(VirtualRanks, HaveOtherBitsThanRanksThatAreAddedInTheirOrder) {
  ShardedOptions options = of_virtual_ranks(0, 8, 1, DType::f32);
  const std::vector<double> tree = bits_by(8, kAdamW, options);
  std::vector<double> order;
  std::mutex mutex;
  run_ranks(8, [&](Communicator& comm) {
    const Context context = testing::context(1);
    DroppingNet net;
    ShardedOptions plain = options;
    plain.sharding.virtual_ranks = 0;
    Sharded engine(net, context, comm, kAdamW(), plain);
    StepResult result;
    for (int step = 0; step < 3; ++step) {
      const Span span = dealt(options, comm.rank(), 0);
      engine.backward(loss_of(net, engine, step, span), {.weight = span.count()});
      result = engine.step(1e-2).get();
    }
    const std::vector<double> bits = bits_of(engine, comm, result);
    const std::lock_guard lock(mutex);
    order = bits;
  });
  EXPECT_NE(order, std::vector<double>(tree.begin(), tree.begin() + std::ssize(order)));
  EXPECT_NEAR(order[0], tree[0], 1e-6 * tree[0]) << "the norm";
}

// The gradient of each virtual rank, by an engine of a rank alone that knows of no virtual ranks.
std::vector<std::vector<float>> gradients_alone(const ShardedOptions& options) {
  std::vector<std::vector<float>> all;
  for (int number = 0; number < options.sharding.virtual_ranks; ++number) {
    const Context context = testing::context(1);
    DroppingNet net;
    ShardedOptions plain = options;
    plain.sharding.virtual_ranks = 0;
    Sharded engine(net, context, kAdamW(), plain);
    const Span span = dealt(options, number, 0);
    engine.backward(loss_of(net, engine, 0, span), {.weight = span.count()});
    std::vector<float>& mine = all.emplace_back();
    for (const auto& unit : engine.units())
      for (const Segment& segment : unit->layout().segments)
        for (const double value : doubles(segment.parameter->variable.grad()))
          mine.push_back(static_cast<float>(value));
  }
  return all;
}
std::vector<float> tree_of(std::span<const std::vector<float>> leaves) {
  if (leaves.size() == 1) return leaves.front();
  std::vector<float> sum = tree_of(leaves.first(leaves.size() / 2));
  const std::vector<float> other = tree_of(leaves.subspan(leaves.size() / 2));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

TEST(VirtualRanks, SumGradientsAlongATreeThatIsWrittenDownApart) {
  const ShardedOptions options = of_virtual_ranks(0, 8, 1, DType::f32);
  const std::vector<std::vector<float>> leaves = gradients_alone(options);
  const std::vector<float> expected = tree_of(leaves);
  for (const int ranks : {1, 2, 4, 8})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      DroppingNet net;
      Sharded engine(net, context, comm, kAdamW(), options);
      add_gradients(engine, net, 0);
      std::vector<float> sum;
      for (const auto& unit : engine.units())
        for (const Segment& segment : unit->layout().segments)
          for (const double value :
               doubles(unit->gradient().own().slice(0, segment.offset, segment.offset + segment.numel)))
            sum.push_back(static_cast<float>(value));
      EXPECT_EQ(sum, expected) << ranks;
    });
}

TEST(VirtualRanks, PartialSumsAreABinaryCounter) {
  run_ranks(1, [](Communicator& comm) {
    const Context context = testing::context(1);
    for (const int count : {2, 4, 8}) {
      PartialSums sums(count, 301, DType::f32, context, comm);
      EXPECT_EQ(context.memory()[Purpose::gradient].current,
                static_cast<std::size_t>(std::bit_width(count - 1u) * 301 * 4));
      for (int again = 0; again < 2; ++again) {
        sums.restart();
        std::vector<std::vector<float>> leaves;
        for (int i = 0; i < count; ++i) {
          EXPECT_FALSE(sums.is_complete());
          const Tensor leaf = uniform_tensor(context, {301}, static_cast<std::uint64_t>(i + again), DType::bf16);
          const std::vector<double> values = doubles(leaf);
          leaves.emplace_back(values.begin(), values.end());
          sums.add(leaf);
        }
        EXPECT_TRUE(sums.is_complete());
        const std::vector<float> expected = tree_of(leaves);
        EXPECT_EQ(doubles(sums.total()), std::vector<double>(expected.begin(), expected.end()));
      }
      EXPECT_NE(error_of([&] { sums.add(sums.total()); }).find("gets no further one"), std::string::npos);
    }
    EXPECT_FALSE(error_of([&] { PartialSums(3, 8, DType::f32, context, comm); }).empty());
  });
}

// A pass that is not finite on one virtual rank skips the step, wherever it is computed, and the next one is taken.
TEST(VirtualRanks, SkipAStepTogetherAndForgetWhatWasAdded) {
  std::vector<double> all[2];
  for (const int ranks : {1, 4}) {
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      DroppingNet net;
      const ShardedOptions options = of_virtual_ranks(2, 4, 1, DType::f32);
      Sharded engine(net, context, comm, kAdamW(), options);
      for (int i = 0; i < engine.virtual_ranks(); ++i) {
        const int number = comm.rank() * engine.virtual_ranks() + i;
        const Span span = dealt(options, number, 0);
        const double factor = number == 2 ? INFINITY : 1;
        engine.backward(scale(loss_of(net, engine, 0, span), factor), {.weight = span.count()});
      }
      const StepResult skipped = engine.step(1e-2).get();
      EXPECT_FALSE(skipped.taken);
      EXPECT_EQ(skipped.first_bad, "layers.0.linear.weight");
      if (ranks == 1) {  // given up in the middle
        engine.backward(loss_of(net, engine, 3, {0, 5}), {.weight = 5});
        engine.zero_grad();
      }
      add_gradients(engine, net, 1);
      const StepResult taken = engine.step(1e-2).get();
      EXPECT_TRUE(taken.taken);
      const std::vector<double> bits = bits_of(engine, comm, taken);
      const std::lock_guard lock(mutex);
      all[ranks / 4] = bits;
    });
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST(VirtualRanks, ObserveBuffersAsRanksOfTheirOwnWould) {
  std::vector<double> reference;
  for (const int ranks : {8, 4, 2, 1}) {
    std::vector<double> all;
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      ObservingNet net;
      const ShardedOptions options = of_virtual_ranks(1, 8, 2, DType::f32);
      Sharded engine(net, context, comm, kAdamW(), options);
      StepResult result;
      for (int step = 0; step < 2; ++step) {
        const Tensor x = uniform_tensor(context, {kDealtRows, kWidth}, 9 + static_cast<std::uint64_t>(step));
        for (int i = 0; i < engine.virtual_ranks(); ++i)
          for (const int micro : {0, 1}) {
            const Span span = dealt(options, comm.rank() * engine.virtual_ranks() + i, micro);
            engine.backward(mean(square(net(x.slice(0, span.begin, span.end)))),
                            {.weight = span.count(), .last = micro == 1});
          }
        result = engine.step(1e-2).get();
      }
      std::vector<double> bits = bits_of(engine, comm, result);
      for (const double value : doubles(net.norm.running_mean.value())) bits.push_back(value);
      const std::lock_guard lock(mutex);
      all = bits;
    });
    if (reference.empty()) reference = all;
    EXPECT_EQ(all, reference) << ranks;
  }
}

// Of each K = 4 a rank keeps log2(4) further gradients, in fp32, in which gradients then travel.
TEST(VirtualRanks, ArePlannedByFormula) {
  UnitNet net;
  const ShardedOptions with = of_virtual_ranks(1, 8, 1, DType::bf16);
  ShardedOptions without = with;
  without.sharding.virtual_ranks = 0;
  const std::vector<FlatBuffer> layout = lay_out(net, shard_ranks(with, 2));
  std::int64_t padded = 0;
  for (const FlatBuffer& unit : layout) padded += unit.padded;
  const RankPlan plan = plan_rank(layout, *make_adamw(), with, 2, 0),
                 plain = plan_rank(layout, *make_adamw(), without, 2, 0);
  EXPECT_EQ(plan.memory.partial_sums, 2 * padded * 4);
  EXPECT_EQ(plan.memory.gradient, padded * 2 + plan.memory.partial_sums);
  EXPECT_EQ(plan.traffic.reductions, padded / 2 * 4);
  EXPECT_EQ(plan.traffic.gathers, plain.traffic.gathers);
  EXPECT_EQ(plain.traffic.reductions, padded / 2 * 2);
}

TEST(VirtualRanks, KeepAndSendWhatIsPlannedWithOptimizersThatAskTheOthers) {
  const Maker lamb = by({.settings = LambSettings{}});
  for (const auto& [optimizer, stage] :
       {std::pair(lamb, 0), std::pair(lamb, 3), std::pair(kMuon, 0), std::pair(kMuon, 2)})
    for (const int ranks : {1, 2, 4})
      run_ranks(ranks, [&, optimizer = optimizer, stage = stage](Communicator& comm) {
        const Context context = testing::context(1);
        DroppingNet net;
        const ShardedOptions options = of_virtual_ranks(stage, 4, 2, DType::bf16);
        const RankPlan plan =
            plan_rank(lay_out(net, shard_ranks(options, ranks)), *optimizer(), options, ranks, comm.rank());
        Sharded engine(net, context, comm, optimizer(), options);
        EXPECT_EQ(plan.memory.gradient, static_cast<std::int64_t>(context.memory()[Purpose::gradient].current));
        std::int64_t data = 0, control = 0;
        for (int step = 0; step < 2; ++step) {
          data = engine.data_traffic().sent();
          control = engine.control_traffic().sent();
          if (step == 1) context.allocator().reset_peaks();
          add_gradients(engine, net, step);
          engine.step(1e-3);
          for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
        }
        EXPECT_EQ(plan.traffic.sent(), engine.data_traffic().sent() - data) << stage << ' ' << ranks;
        EXPECT_EQ(plan.traffic.control, engine.control_traffic().sent() - control) << stage << ' ' << ranks;
        EXPECT_EQ(plan.memory.buckets, static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak));
      });
}

std::string refusal(int ranks, const std::function<void(ShardedOptions&)>& set, const Maker& optimizer = kAdamW) {
  std::string said;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    DroppingNet net;
    ShardedOptions options = of_virtual_ranks(1, 8, 1, DType::bf16);
    options.clip = 0;
    set(options);
    const std::string mine = error_of([&] { Sharded(net, context, comm, optimizer(), options); });
    const std::lock_guard lock(mutex);
    said = mine;
  });
  return said;
}

TEST(VirtualRanks, RefuseWhatIsNoTreeAndSayWhatToDo) {
  const auto expect = [](const std::string& said, std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) EXPECT_NE(said.find(word), std::string::npos) << said << "\n  " << word;
  };
  expect(refusal(2, [](ShardedOptions& o) { o.sharding.virtual_ranks = 6; }),
         {"sharding.virtual_ranks", "1, 2, 4, 8", "got 6"});
  expect(refusal(3, [](ShardedOptions&) {}),
         {"8 virtual ranks", "1, 2, 4 ... ranks", "there are 3", "set virtual_ranks to 0"});
  expect(refusal(4, [](ShardedOptions& o) { o.sharding.virtual_ranks = 2; }), {"2 at most", "there are 4"});
  const std::pair<const char*, std::function<void(ShardedOptions&)>> all[] = {
      {"sharding.group", [](ShardedOptions& o) { o.sharding.group = 1; }},
      {"outer.type", [](ShardedOptions& o) { o.strategy = [] { return nullptr; }; }},
      {"gradient_compression.type", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::int8}; }},
      {"gradient_compression.type", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::bf16}; }},
      {"sharding.wire", [](ShardedOptions& o) { o.wire = DType::bf16; }},
      {"sharding.weight_code", [](ShardedOptions& o) { o.sharding.weight_code = WeightCode::int8; }},
      {"sharding.accumulation", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
  };
  for (const auto& [key, set] : all) expect(refusal(2, set), {"sharding.virtual_ranks", key});
  expect(refusal(
             2, [](ShardedOptions&) {}, [] { return make_lbfgs({}); }),
         {"sharding.virtual_ranks", "optimizer.type"});
  expect(refusal(
             2, [](ShardedOptions&) {}, [] { return sparse_adam(); }),
         {"sharding.virtual_ranks", "optimizer.type"});
  EXPECT_EQ(refusal(2, [](ShardedOptions& o) { o.wire = DType::f32; }), "");
}

}  // namespace
}  // namespace keel
