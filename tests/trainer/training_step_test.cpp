// What a step says of micro-batches whose losses are not finite.

#include "keel/trainer/training_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "keel/data/token_batch.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/optim/optimizer.h"
#include "keel/tasks/loss.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

constexpr std::int32_t kInput = 7, kTarget = 5, kOther = 6;

// Each row has a length of its own; a micro-batch is one row.
class RowsOfLengths final : public BatchSource {
 public:
  RowsOfLengths(Context context, std::vector<std::int64_t> lengths)
      : context_(std::move(context)), lengths_(std::move(lengths)) {}
  std::int64_t rows(std::int64_t) const override { return std::ssize(lengths_); }
  Batch load(std::int64_t, Rows range) const override {
    const std::int64_t length = lengths_.at(static_cast<std::size_t>(range.begin));
    const auto full_of = [&](std::int32_t token) {
      return from_values(context_, std::vector<std::int32_t>(static_cast<std::size_t>(length), token), {1, length});
    };
    return token_batch(full_of(kInput), full_of(kTarget),
                       from_values(context_, std::vector<std::int64_t>{range.begin}, {1}), length);
  }

 private:
  Context context_;
  std::vector<std::int64_t> lengths_;
};

// Weights with which the loss of a row is finite as long as it has one token, infinite up to eight, and no number
// beyond: position 0 favours the target; at the others, logits of the target and of another token lie further apart
// than a number can say; from 8 on, the embeddings' sum is infinite.
void spoil(Gpt& model) {
  const std::int64_t width = model.options.width;
  float* const tokens = model.wte.weight.value().data<float>();
  float* const positions = model.wpe.weight.value().data<float>();
  tokens[kInput * width] = 3e38f;
  tokens[kTarget * width + 1] = -6e37f;
  tokens[kOther * width + 1] = 6e37f;
  for (std::int64_t position = 0; position < model.options.block; ++position) {
    positions[position * width] = position < 8 ? -3e38f : 3e38f;
    positions[position * width + (position == 0 ? 2 : 1)] = 1e3f;
  }
}

// What ranks are told of a step whose micro-batches have these lengths on each.
// `of_first`: those of the first rank, where they are others.
std::vector<std::string> complaints(const std::vector<std::int64_t>& lengths, std::string_view weight = kTokenWeight,
                                    const std::vector<std::int64_t>& of_first = {}) {
  std::mutex mutex;
  std::vector<std::string> told;
  std::vector<std::int64_t> of_both = of_first.empty() ? lengths : of_first;
  of_both.insert(of_both.end(), lengths.begin(), lengths.end());
  run_ranks(2, [&](Communicator& ranks) {
    const Context context = testing::context(1);
    const auto further = ranks.split(0, ranks.rank());
    Gpt model(testing::tiny_gpt());
    Sharded engine(model, context, ranks, make_sgd(), {.micro_batches = std::ssize(lengths)});
    spoil(model);
    TrainingSteps::Parts parts{.model = model,
                               .loss =
                                   [&](const Batch& batch, Forward& pass) {
                                     return Loss(model.loss(batch[kInputIds], batch[kLabels], pass),
                                                 std::string(weight));
                                   },
                               .engine = engine,
                               .ranks = *further,
                               .loader = std::make_shared<RowsOfLengths>(context, of_both),
                               .curves = {from_values(context, std::vector<double>{0.1}, {1})},
                               .last_step = 1};
    try {
      TrainingSteps(parts, 0).next();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      told.emplace_back(error.what());
    }
  });
  return told;
}

TEST(TrainingSteps, NameTheFirstLossOfARankThatIsNotFinite) {
  EXPECT_EQ(complaints({1, 1}), std::vector<std::string>());
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{1, 8, 12}, {8, 12, 1}, {8, 8}}) {
    const std::vector<std::string> told = complaints(lengths);
    ASSERT_EQ(told.size(), 2u);
    for (const std::string& message : told)
      EXPECT_TRUE(message.starts_with("step 1: the loss on rank 0 is inf; first bad tensor: ")) << message;
  }
  for (const std::string& message : complaints({12, 8}))
    EXPECT_NE(message.find("nan; first bad tensor: "), std::string::npos) << message;
  const std::vector<std::string> of_second = complaints({1, 8}, kTokenWeight, {1, 1});
  ASSERT_EQ(of_second.size(), 2u);
  for (const std::string& message : of_second)
    EXPECT_TRUE(message.starts_with("step 1: the loss on rank 1 is inf; first bad tensor: ")) << message;
}

// Other micro-batches would be another training.
TEST(TrainingSteps, RefuseALossThatIsAMeanOverMoreThanItsWeightCounts) {
  const std::vector<std::string> told = complaints({3, 3}, kRowWeight);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(std::ranges::any_of(told, [](const std::string& message) {
    return message.find("the loss is a mean over 3 targets, but the batch has 1 rows") != std::string::npos;
  })) << told.front();
}

// Waits in a micro-batch for what is loaded meanwhile.
TEST(TrainingSteps, OfARankAloneLoadTwoBatchesAheadAndNotTheWholeStep) {
  constexpr std::int64_t kMicroBatches = 12;
  const Context context = testing::context(1);
  Gpt model(testing::tiny_gpt());
  const auto loaded = std::make_shared<std::atomic<std::int64_t>>(0);
  class Counted final : public BatchSource {
   public:
    Counted(Context context, std::shared_ptr<std::atomic<std::int64_t>> count)
        : rows_(std::move(context), std::vector<std::int64_t>(kMicroBatches, 1)), count_(std::move(count)) {}
    std::int64_t rows(std::int64_t step) const override { return rows_.rows(step); }
    Batch load(std::int64_t step, Rows range) const override {
      ++*count_;
      return rows_.load(step, range);
    }

   private:
    RowsOfLengths rows_;
    std::shared_ptr<std::atomic<std::int64_t>> count_;
  };
  run_ranks(1, [&](Communicator& ranks) {
    Sharded engine(model, context, ranks, make_sgd(), {.micro_batches = kMicroBatches});
    const auto further = ranks.split(0, 0);
    std::int64_t computed = 0;
    TrainingSteps::Parts parts{.model = model,
                               .loss =
                                   [&](const Batch& batch, Forward& pass) {
                                     if (++computed == kMicroBatches + 1) {
                                       std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                       // Two that wait, and one that the loader has at hand.
                                       EXPECT_LE(*loaded, computed + 2 + 1);
                                     }
                                     return Loss(model.loss(batch[kInputIds], batch[kLabels], pass),
                                                 std::string(kTokenWeight));
                                   },
                               .engine = engine,
                               .ranks = *further,
                               .loader = std::make_shared<Counted>(context, loaded),
                               .curves = {from_values(context, std::vector<double>{0.1}, {1})},
                               .last_step = 4};
    TrainingSteps steps(parts, 0);
    for (int i = 0; i < 2; ++i) steps.next();  // the first needs all of its batches before it begins
    EXPECT_EQ(computed, 2 * kMicroBatches);
  });
}

}  // namespace
}  // namespace keel
