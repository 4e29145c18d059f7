// Embeddings whose gradients are kept as rows, under every stage: only the rows that any rank used change.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/plan/rank_plan.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/parallel/rows_support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

struct TablesOutcome {
  std::vector<double> weights;
  double norm = 0;
};

// What rank 0 has in the end, whose weights all ranks have.
TablesOutcome outcome_of(int ranks, const ShardedOptions& options, int steps, int micros = 1) {
  TablesOutcome outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Tables net;
    const bool stochastic = options.policy.parameter == DType::bf16;
    Sharded engine(net, context, comm, sparse_adam(stochastic), options);
    train_tables(engine, net, 0, steps, micros);
    engine.backward(loss_of(net, context, steps, part({0, kSamples}, comm.size(), comm.rank())), {.weight = 1});
    const double norm = engine.step(0).get().grad_norm;
    const std::vector<double> weights = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (outcome.weights.empty()) outcome = {weights, norm};
    EXPECT_EQ(outcome.weights, weights) << "rank " << comm.rank();
    EXPECT_EQ(outcome.norm, norm) << "rank " << comm.rank();
  });
  return outcome;
}

TEST(ShardedRows, GiveTheSameBitsInEveryStage) {
  for (const int ranks : {2, 3, 4})
    for (const auto& [dtype, clip_by] : {std::pair(DType::f32, ClipBy::norm), std::pair(DType::bf16, ClipBy::norm),
                                         std::pair(DType::f32, ClipBy::value)}) {
      const auto options_of = [&, dtype = dtype, clip_by = clip_by](int number) {
        ShardedOptions options = stage(number);
        options.policy = PrecisionPolicy::of(dtype);
        options.clip = 0.05;
        options.clip_by = clip_by;
        return options;
      };
      const TablesOutcome first = outcome_of(ranks, options_of(0), 5);
      EXPECT_GT(first.norm, 0);
      for (int number = 1; number <= 3; ++number) {
        const TablesOutcome other = outcome_of(ranks, options_of(number), 5);
        EXPECT_EQ(other.weights, first.weights) << ranks << " ranks, stage " << number << ' ' << dtype;
        EXPECT_EQ(other.norm, first.norm) << ranks << " ranks, stage " << number << ' ' << dtype;
      }
    }
}

TEST(ShardedRows, GiveTheSameBitsInEveryStageOverMicroBatches) {
  for (const int ranks : {2, 3}) {
    const auto options_of = [&](int number) {
      ShardedOptions options = stage(number);
      options.micro_batches = 3;
      return options;
    };
    const TablesOutcome first = outcome_of(ranks, options_of(0), 3, 3);
    for (int number = 1; number <= 3; ++number)
      EXPECT_EQ(outcome_of(ranks, options_of(number), 3, 3).weights, first.weights) << ranks << ' ' << number;
    const auto each_of = [&](int number) {
      ShardedOptions options = each_backward(number);
      options.micro_batches = 3;
      return outcome_of(ranks, options, 3, 3).weights;
    };
    const auto each = each_of(0);
    for (int number = 1; number <= 3; ++number) EXPECT_EQ(each_of(number), each) << ranks << ' ' << number;
    EXPECT_LT(relative_error(each, first.weights), 1e-6);  // in another order of additions
  }
}

TEST(ShardedRows, GiveTheSameBitsInGroupsOfRanks) {
  ShardedOptions two = stage(2);
  two.sharding.group = 2;
  const TablesOutcome first = outcome_of(4, two, 3);
  for (const int number : {1, 3}) {
    ShardedOptions other = stage(number);
    other.sharding.group = 2;
    EXPECT_EQ(outcome_of(4, other, 3).weights, first.weights) << number;
  }
  EXPECT_LT(relative_error(first.weights, outcome_of(4, stage(2), 3).weights), 1e-6);
}

// Weights that are powers of two and whole factors: the sums of the first step's gradients are exact.
TEST(ShardedRows, EqualOneRankWhereGradientsAreExact) {
  const auto weights_of = [](int ranks) {
    std::vector<double> weights;
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Tables net;
      Sharded engine(net, context, comm, sparse_adam(), stage(2));
      TensorParts ones = engine.weights();
      for (TensorPart& part : ones)
        if (part.numel() > 0) part.values = kernels::full(context, part.values.shape(), 0.5, DType::f32);
      engine.load_weights(ones);
      const Span mine = part({0, kSamples}, comm.size(), comm.rank());
      engine.backward(scale(loss_of(net, context, 0, mine), static_cast<double>(kFeatures)), {.weight = mine.count()});
      EXPECT_TRUE(engine.step(1e-2).get().taken);
      const std::vector<double> mine_too = whole_values(engine);
      if (comm.rank() == 0) weights = mine_too;
    });
    return weights;
  };
  const std::vector<double> alone = weights_of(1);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(weights_of(ranks), alone) << ranks;
}

TEST(ShardedRows, ChangeNoOtherRowsNorWhatIsKeptOfThem) {
  for (const int ranks : {1, 3})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Tables net;
      Sharded engine(net, context, comm, sparse_adam(), stage(1));
      train_tables(engine, net, 0, 2);
      const TensorParts state = engine.optimizer_state();
      std::vector<std::vector<double>> before;
      for (const TensorPart& part : state)
        before.push_back(part.numel() > 0 ? doubles(part.values) : std::vector<double>{});
      const std::vector<double> weights = whole_values(engine);
      train_tables(engine, net, 2, 3);
      std::vector<bool> used(kWords), tagged(kTags);
      for (std::int64_t sample = 0; sample < kSamples; ++sample) {
        used[static_cast<std::size_t>(word_of(2, sample))] = true;
        tagged[static_cast<std::size_t>(tag_of(2, sample))] = true;
      }
      ASSERT_FALSE(used[kUnused]);
      const auto is_used = [&](std::string_view name, std::int64_t element) {
        const auto row = static_cast<std::size_t>(element / kFeatures);
        return name.find("words") != std::string_view::npos ? used[row] : tagged[row];
      };
      for (std::size_t p = 0; p < state.size(); ++p) {
        const std::vector<double> after = state[p].numel() > 0 ? doubles(state[p].values) : std::vector<double>{};
        for (std::size_t i = 0; i < after.size(); ++i)
          EXPECT_EQ(after[i] != before[p][i], is_used(state[p].name, state[p].begin + static_cast<std::int64_t>(i)))
              << state[p].name << ' ' << i;
      }
      // whole_values() goes through the units: find each table there.
      std::size_t at = 0;
      const std::vector<double> after = whole_values(engine);
      for (const auto& unit : engine.units())
        for (const Segment& segment : unit->layout().segments)
          for (std::int64_t i = 0; i < segment.numel; ++i, ++at)
            EXPECT_EQ(after[at] != weights[at], unit->trainable() && is_used(segment.name, i))
                << segment.name << ' ' << i;
    });
}

TEST(ShardedRows, AreAddedOverMicroBatchesAsInOneBatch) {
  run_ranks(1, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Tables once, often;
    ShardedOptions options = stage(0);
    options.micro_batches = 4;
    Sharded whole(once, context, comm, sparse_adam(), stage(0)), parts(often, context, comm, sparse_adam(), options);
    train_tables(whole, once, 0, 3);
    train_tables(parts, often, 0, 3, 4);
    EXPECT_LT(relative_error(numbers_of(parts.weights()), numbers_of(whole.weights())), 1e-6);
  });
}

TEST(ShardedRows, GoOnFromTheirStateAsIfTheyHadNeverStopped) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Tables net, copy;
      Sharded engine(net, context, comm, sparse_adam(), stage(2)), other(copy, context, comm, sparse_adam(), stage(2));
      train_tables(engine, net, 0, 2);
      other.load_weights(engine.weights());
      other.load_optimizer_state(engine.optimizer_state(), engine.state());
      train_tables(engine, net, 2, 4);
      train_tables(other, copy, 2, 4);
      EXPECT_EQ(numbers_of(other.weights()), numbers_of(engine.weights()));
      EXPECT_EQ(numbers_of(other.optimizer_state()), numbers_of(engine.optimizer_state()));
    });
}

TEST(ShardedRows, SendAsManyBytesAsRowsWereUsed) {
  for (const int ranks : {2, 3, 4})
    for (const int number : {0, 2})
      run_ranks(ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        Tables net;
        Sharded engine(net, context, comm, sparse_adam(), stage(number));
        const auto most_rows = [&](std::int64_t (*id)(int, std::int64_t)) {
          std::size_t most = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const Span mine = part({0, kSamples}, ranks, rank);
            std::vector<std::int64_t> ids;
            for (std::int64_t i = mine.begin; i < mine.end; ++i) ids.push_back(id(0, i));
            std::sort(ids.begin(), ids.end());
            most = std::max(most, static_cast<std::size_t>(std::unique(ids.begin(), ids.end()) - ids.begin()));
          }
          return static_cast<std::int64_t>(most);
        };
        const std::int64_t before = engine.data_traffic().sent();
        engine.backward(loss_of(net, context, 0, part({0, kSamples}, ranks, comm.rank())));
        std::int64_t expected = 0;
        for (const std::int64_t rows : {most_rows(word_of), most_rows(tag_of)})
          expected += (ranks - 1) * (8 + rows * (8 + kFeatures * 4));
        EXPECT_EQ(engine.data_traffic().sent() - before, expected) << ranks << " ranks, stage " << number;
      });
}

TEST(ShardedRows, KeepGradientsOfTheRowsThatWereUsedAlone) {
  struct Large : Module {
    Embedding table{50000, kFeatures, Initializer::zeros(), true};
    void visit(Visitor& v) override { v("table", table); }
  };
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      Large net;
      Sharded engine(net, context, comm, sparse_adam(), stage(0));
      const std::vector<std::int64_t> ids = {7, 49999, 7};
      engine.backward(sum(net.table(from_values(context, ids, {3}))));
      EXPECT_EQ(context.memory()[Purpose::gradient].current, 2 * (8 + kFeatures * 4U));
      engine.step(1e-3).get();
      EXPECT_EQ(context.memory()[Purpose::gradient].current, 0U);
    });
}

TEST(ShardedRows, OfARankWithoutTokensDoNotCount) {
  run_ranks(2, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Tables net;
    Sharded engine(net, context, comm, sparse_adam(), stage(0));
    train_tables(engine, net, 0, 1);  // so that a row that counts would move, also by a gradient of 0
    const std::vector<double> before = whole_values(engine);
    // The second rank looks at other samples, which are nobody's.
    const Span samples = comm.rank() == 0 ? Span{0, 1} : Span{1, 3};
    engine.backward(loss_of(net, context, 0, samples), {.weight = comm.rank() == 0 ? 1 : 0});
    engine.step(1e-2).get();
    const std::vector<double> after = whole_values(engine);
    int changed = 0;
    for (std::size_t i = 0; i < after.size(); ++i) changed += after[i] != before[i];
    EXPECT_EQ(changed, 2 * kFeatures);  // a word and a tag
  });
}

TEST(ShardedRows, SkipAStepWhoseGradientIsNotFiniteAndNameTheTable) {
  run_ranks(2, [&](Communicator& comm) {
    const Context context = testing::context(1);
    Tables net;
    Sharded engine(net, context, comm, sparse_adam(), stage(3));
    train_tables(engine, net, 0, 1);
    const std::vector<double> weights = numbers_of(engine.weights()), state = numbers_of(engine.optimizer_state());
    const Variable words = net.words(ids_of(context, 0, {0, 2}, word_of));
    engine.backward(sum(scale(words, comm.rank() == 1 ? NAN : 1)));
    const StepResult result = engine.step(1).get();
    EXPECT_FALSE(result.taken);
    EXPECT_EQ(result.first_bad, "words.weight");
    EXPECT_EQ(numbers_of(engine.weights()), weights);
    EXPECT_EQ(numbers_of(engine.optimizer_state()), state);
  });
}

TEST(ShardedRows, RefuseDenseGradientsAndDenseOptimizersByName) {
  const Context context = testing::context(1);
  struct Mixed : Module {
    Embedding table{8, 4, Initializer::normal(1), true};
    Linear head{4, 2};
    void visit(Visitor& v) override {
      v("table", table);
      v("head", head);
    }
  };
  const std::string dense =
      "SparseAdam takes gradients that are kept as rows alone, and that of head.weight is dense: freeze it, make it an "
      "embedding with sparse gradients, or take another optimizer, such as Adam";
  Mixed mixed;
  EXPECT_EQ(error_of([&] { Sharded(mixed, context, sparse_adam()); }), dense);
  EXPECT_EQ(error_of([&] { plan_rank(lay_out(mixed), *sparse_adam(), {}, 1, 0); }), dense);
  EXPECT_EQ(error_of([&] { Sharded(mixed, context, make_adamw()); }),
            "AdamW takes dense gradients, and that of table.weight is kept as rows: take SparseAdam, or an embedding "
            "with dense gradients (sparse = false)");
  mixed.head.weight.set_trainable(false);
  mixed.head.bias.set_trainable(false);
  EXPECT_EQ(error_of([&] { Sharded(mixed, context, sparse_adam()); }), "");
  EXPECT_EQ(error_of([&] { plan_rank(lay_out(mixed), *sparse_adam(), {}, 1, 0); }),
            "memory and bytes of table.weight, whose gradient is kept as rows, follow from what each batch looks up; "
            "there is no plan of them");
  struct Vector : Module {
    Parameter scale{{4}, Initializer::ones()};
    Vector() { scale.set_sparse(true); }
    void visit(Visitor& v) override { v("scale", scale); }
  };
  Vector vector;
  EXPECT_EQ(error_of([&] { Sharded(vector, context, sparse_adam()); }),
            "the gradient of scale, of shape (4), cannot be kept as rows: it is no table (vocabulary, width)");
}

}  // namespace
}  // namespace keel
