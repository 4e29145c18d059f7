// States in 8 bits however they are cut: the same blocks, and so the same bits, for every stage and number of ranks.

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

#include "keel/dist/plan/rank_plan.h"
#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/elementwise.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/groups.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Matrices of 4160 numbers, of which the second begins behind a gap, and biases between.
struct BiasedUnit : Module {
  Linear up{kWidth, kWidth + 1}, down{kWidth + 1, kWidth};
  Variable operator()(const Variable& x) const {
    const Scope scope(*this);
    return down(tanh(up(x)));
  }
  void visit(Visitor& v) override {
    v("up", up);
    v("down", down);
  }
  bool is_unit() const override { return true; }
};

struct TableNet : Module {
  Embedding table{80, kWidth};
  std::vector<BiasedUnit> units = std::vector<BiasedUnit>(2);
  Variable operator()(const Tensor& ids) const {
    const Scope scope(*this);
    Variable y = table(ids);
    for (const BiasedUnit& unit : units) y = unit(y);
    return y;
  }
  void visit(Visitor& v) override {
    v("table", table);
    v("units", units);
  }
};

std::unique_ptr<Optimizer> adamw_8bit() {
  return make_elementwise("AdamW8bit",
                          {.settings = AdamSettings{.decoupled = true, .min_8bit_size = 4096}, .weight_decay = 0.1});
}

ShardedOptions options_in(int number, Module& model, DType dtype = DType::f32) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(dtype);
  options.groups = keep_full_state(decay_matrices_only, embedding_tables(model));
  return options;
}

// Steps whose gradient is rank 0's alone, so that it is the same for any number of ranks.
void train_in_8bit(Sharded& engine, const TableNet& net, int first, int last) {
  for (int step = first; step < last; ++step) {
    std::vector<std::int64_t> ids(24);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int64_t>(i * 7 + static_cast<std::size_t>(step)) % 80;
    const Tensor batch = from_values(engine.context(), ids, {24});
    const Variable wanted(uniform_tensor(engine.context(), {24, kWidth}, 50 + static_cast<std::uint64_t>(step),
                                         engine.options().policy.parameter));
    engine.backward(mse_loss(net(batch), wanted), {.weight = engine.rank() == 0 ? 24 : 0});
    EXPECT_TRUE(engine.step(1e-2 / (1 + step)).get().taken);
  }
}

// The parts of all ranks, on processors.
using Whole = std::map<std::string, std::vector<double>>;
void add_parts(Whole& whole, const TensorParts& parts) {
  for (const TensorPart& part : parts) {
    std::vector<double>& numbers = whole[part.name];
    numbers.resize(static_cast<std::size_t>(product(part.shape)));
    if (part.numel() == 0) continue;
    const std::vector<double> values = doubles(part.values);
    std::copy(values.begin(), values.end(), numbers.begin() + part.begin);
  }
}

struct Saved {
  TensorParts weights, state;
  StepState steps;
};
TensorParts copies_of(const TensorParts& parts) {
  TensorParts copies = parts;
  for (TensorPart& part : copies)
    if (part.numel() > 0) part.values = kernels::clone(part.values);
  return copies;
}

// Weights and states of all ranks after steps [first, last), from what was saved on, if anything; saves them, too.
Whole run(int ranks, int number, int first, int last, DType dtype = DType::f32, const Saved* from = nullptr,
          Saved* to = nullptr) {
  Whole whole;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    TableNet net;
    Sharded engine(net, context, comm, adamw_8bit(), options_in(number, net, dtype));
    if (from != nullptr) {
      engine.load_weights(from->weights);
      engine.load_optimizer_state(from->state, from->steps);
    }
    train_in_8bit(engine, net, first, last);
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();  // before the lock: others send
    const TensorParts weights = engine.weights(), state = engine.optimizer_state();
    const std::lock_guard lock(mutex);
    add_parts(whole, weights);
    add_parts(whole, state);
    if (to == nullptr || !(engine.holds_parts() || comm.rank() == 0)) return;
    to->steps = engine.state();
    for (const TensorPart& part : copies_of(weights)) to->weights.push_back(part);
    for (const TensorPart& part : copies_of(state)) to->state.push_back(part);
  });
  return whole;
}

TEST(Adam8bit, GivesTheSameBitsInEveryStageAndForAnyNumberOfRanks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Whole one = run(1, 0, 0, 4, dtype);
    EXPECT_TRUE(one.contains("m_codes.units.0.up.weight"));
    EXPECT_TRUE(one.contains("v.units.0.up.bias"));
    EXPECT_TRUE(one.contains("v.table.weight")) << "embeddings keep whole states";
    for (const int ranks : {2, 3, 4})
      for (const int number : {0, 1, 2, 3})
        EXPECT_EQ(run(ranks, number, 0, 4, dtype), one) << dtype << ", stage " << number << ", " << ranks << " ranks";
  }
}

TEST(Adam8bit, GivesTheSameBitsInEveryStageOfCompressedGradients) {
  const auto whole_of = [](int ranks, int number, const Compression& compression) {
    Whole whole;
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
      const Context context = testing::context(1);
      TableNet net;
      ShardedOptions options = options_in(number, net);
      options.compression = compression;
      Sharded engine(net, context, comm, adamw_8bit(), options);
      train_in_8bit(engine, net, 0, 4);
      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
      const std::lock_guard lock(mutex);
      add_parts(whole, engine.weights());
      add_parts(whole, engine.optimizer_state());
    });
    return whole;
  };
  for (const Compression::Type type : {Compression::Type::int8, Compression::Type::top_k, Compression::Type::power_sgd})
    for (const int ranks : {2, 3}) {
      const Whole first = whole_of(ranks, 0, {.type = type, .fraction = 0.1});
      EXPECT_NE(first, whole_of(ranks, 0, {}));
      for (const int number : {1, 2, 3})
        EXPECT_EQ(whole_of(ranks, number, {.type = type, .fraction = 0.1}), first)
            << Compression{.type = type}.kind().name << ", stage " << number << ", " << ranks << " ranks";
    }
}

TEST(Adam8bit, GoesOnWithOtherRanksAndStagesAsIfItHadNeverStopped) {
  const Whole straight = run(1, 0, 0, 4);
  Saved saved;
  run(3, 2, 0, 2, DType::f32, nullptr, &saved);
  for (const auto& [ranks, number] : {std::pair(1, 0), std::pair(2, 3), std::pair(4, 1), std::pair(3, 0)})
    EXPECT_EQ(run(ranks, number, 2, 4, DType::f32, &saved), straight) << ranks << " ranks, stage " << number;
}

TEST(Adam8bit, RefusesTheStateOfAdamWithoutCodes) {
  const Context context = testing::context(1);
  TableNet net, other;
  Sharded wide(net, context, make_adamw(), options_in(0, net)),
      narrow(other, context, adamw_8bit(), options_in(0, other));
  const std::vector<double> before = whole_values(narrow);
  try {
    narrow.load_optimizer_state(wide.optimizer_state(), {});
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("m_codes.units.0.up.weight"), std::string::npos) << error.what();
  }
}

TEST(Adam8bit, KeepsTwoBytesANumberAndTwoScalesABlock) {
  const Context context = testing::context(1);
  TableNet net;
  const auto before = context.memory()[Purpose::optimizer].current;
  Sharded engine(net, context, adamw_8bit(), options_in(0, net));
  constexpr std::int64_t kMatrix = kWidth * (kWidth + 1), kBlocks = (kMatrix + kStateBlock - 1) / kStateBlock;
  constexpr std::int64_t kExpected = 4 * (2 * kMatrix + 8 * kBlocks) + 8 * 2 * (kWidth + kWidth + 1) + 8 * 80 * kWidth;
  EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current - before), kExpected);
  for (const int ranks : {1, 2, 3, 4})
    for (const int number : {0, 1, 2, 3}) {
      const ShardedOptions options = options_in(number, net);
      std::int64_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank)
        sum += plan_rank(lay_out(net, ranks, kStateBlock), *adamw_8bit(), options, ranks, rank).memory.optimizer;
      EXPECT_EQ(sum, kExpected * (number == 0 ? ranks : 1)) << ranks << " ranks, stage " << number;
    }
}

TEST(Adam8bit, LayoutsCutNoBlockOfAParameter) {
  TableNet net;
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const FlatBuffer& buffer : lay_out(net, ranks, kStateBlock)) {
      EXPECT_EQ(buffer.padded % (ranks * kStateBlock), 0);
      std::int64_t end = 0;
      for (const Segment& segment : buffer.segments) {
        EXPECT_GE(segment.offset, end);
        if (segment.numel >= kStateBlock) { EXPECT_EQ(segment.offset % kStateBlock, 0) << segment.name; }
        end = segment.offset + segment.numel;
      }
    }
}

TEST(EmbeddingTables, AreFoundByTheirModuleAlsoWhereTheyAreTied) {
  struct Model : Module {
    Linear head{4, 6, false};
    Embedding words{6, 4};
    Linear embedding{4, 4};  // by its name alone
    Model() { head.weight = words.weight.tie(); }
    void visit(Visitor& v) override {
      v("head", head);
      v("words", words);
      v("embedding", embedding);
    }
  } model;
  EXPECT_EQ(embedding_tables(model), (std::vector<std::string>{"head.weight", "words.weight"}));
  const GroupRule rule = keep_full_state(decay_matrices_only, embedding_tables(model));
  EXPECT_TRUE(rule("head.weight", {6, 4}).full_state);
  EXPECT_FALSE(rule("embedding.weight", {4, 4}).full_state);
}

}  // namespace
}  // namespace keel
