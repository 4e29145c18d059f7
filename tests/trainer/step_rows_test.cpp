// Steps of different numbers of rows, of which some are fewer than the ranks.

#include <gtest/gtest.h>

#include "keel/autograd/functions.h"
#include "keel/trainer/batch_check.h"
#include "keel/trainer/training_step.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kColumns = 5, kMostRows = 6;

// Row r of step s is a function of both; steps have the rows of a list, again and again.
class VaryingRows : public BatchSource {
 public:
  VaryingRows(Context context, std::vector<std::int64_t> rows, DType dtype = DType::f32, std::string field = "x",
              std::int64_t steps = kEndless)
      : context_(std::move(context)), rows_(std::move(rows)), dtype_(dtype), field_(std::move(field)), steps_(steps) {}
  std::int64_t steps() const override { return steps_; }
  std::int64_t rows(std::int64_t step) const override { return rows_[static_cast<std::size_t>(step) % rows_.size()]; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    const auto seed = static_cast<std::uint64_t>(step);
    const Tensor all = uniform_tensor(context_, {rows(step), kColumns}, seed, dtype_);
    Batch batch(context_, 100 * step + range.begin, range.end - range.begin);
    batch.set(field_, kernels::clone(all.slice(0, range.begin, range.end)));
    return batch;
  }

 private:
  Context context_;
  std::vector<std::int64_t> rows_;
  DType dtype_;
  std::string field_;
  std::int64_t steps_;
};

struct TrainedRows {
  std::vector<double> weights, losses;
  std::string error;
  bool operator==(const TrainedRows&) const = default;
};

// Every rank's, where rank r trains on the rows of lists[r], or of the only list.
std::vector<TrainedRows> trained_on_rows(const std::vector<std::vector<std::int64_t>>& lists, int n, int number,
                                         std::int64_t micro, DType dtype, const Device& device = {},
                                         int virtual_ranks = 0) {
  constexpr std::int64_t kSteps = 5;
  std::vector<TrainedRows> all(static_cast<std::size_t>(n));
  run_ranks(n, [&](Communicator& comm) {
    const Context context = Context::create({.device = device, .threads = 1});
    const auto ranks = comm.split(0, comm.rank());
    const auto rank = static_cast<std::size_t>(comm.rank());
    UnitNet net(kColumns, 3);
    ShardedOptions options = stage(number);
    options.policy = PrecisionPolicy::of(dtype);
    options.sharding.virtual_ranks = virtual_ranks;
    options.micro_batches = kMostRows / micro / std::max(virtual_ranks, 1);
    Sharded engine(net, context, comm, make_adamw(), options);
    TrainingSteps training(
        {.model = net,
         .loss = [&](const Batch& batch, Forward&) -> Loss { return mean(square(net(batch["x"]))); },
         .engine = engine,
         .ranks = *ranks,
         .loader = std::make_shared<VaryingRows>(context, lists[std::min(rank, lists.size() - 1)], dtype),
         .micro = micro,
         .curves = {from_values(context, std::vector<double>{0.1}, {1})},
         .last_step = kSteps},
        0);
    auto note = [&, step = std::size_t{0}](const TrainingSteps::Turn& turn) mutable {
      if (!turn.outcome) return;  // a device's comes with the next step
      EXPECT_EQ(turn.outcome->units, lists[0][step++ % lists[0].size()]);
      all[rank].losses.push_back(turn.outcome->loss);
    };
    all[rank].error = error_of([&] {
      for (std::int64_t step = 0; step < kSteps; ++step) note(training.next());
      note(training.finish());
      all[rank].weights = whole_values(engine);
    });
  });
  return all;
}

TEST(StepRows, TrainOneModelHoweverFewAStepHas) {
  const std::vector<std::vector<std::int64_t>> lists = {{6, 1, 4, 2, 5}};
  const TrainedRows alone = trained_on_rows(lists, 1, 0, kMostRows, DType::f64)[0];
  for (const int n : {1, 2, 3, 4})
    for (const std::int64_t micro : {1, 2}) {
      const TrainedRows first = trained_on_rows(lists, n, 0, micro, DType::f64)[0];
      ASSERT_EQ(first.error, "");
      for (std::size_t i = 0; i < alone.weights.size(); ++i)
        ASSERT_NEAR(first.weights[i], alone.weights[i], 1e-11) << n << " ranks, micro-batches of " << micro;
      for (std::size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(first.losses[i], alone.losses[i], 1e-12);
      for (const int number : {1, 2, 3})
        for (const TrainedRows& each : trained_on_rows(lists, n, number, micro, DType::f64))
          EXPECT_TRUE(each == first) << number;
    }
}

// A step's numbers are asked for when the one behind it has begun, which has other micro-batches.
TEST(StepRows, OfADeviceHaveTheLossesOfTheProcessor) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const std::vector<std::vector<std::int64_t>> lists = {{6, 2, 4, 2, 6}};
  for (const int virtual_ranks : {0, 2})
    for (const std::int64_t micro : {1, 3}) {
      const auto losses_on = [&](DeviceType type) {
        const TrainedRows trained = trained_on_rows(lists, 1, 0, micro, DType::f32, {type, 0}, virtual_ranks)[0];
        EXPECT_EQ(trained.error, "");
        return trained.losses;
      };
      const std::vector<double> here = losses_on(DeviceType::emulated), expected = losses_on(DeviceType::cpu);
      ASSERT_EQ(here.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(here[i], expected[i], 1e-6) << "step " << i + 1 << ", micro-batches of " << micro;
    }
}

// What stands in for a rank's rows adds nothing, not even a rounding.
TEST(StepRows, OfOneRowHaveItsBitsOnThreeRanks) {
  const TrainedRows alone = trained_on_rows({{1}}, 1, 0, 1, DType::f32)[0];
  for (const int number : {0, 1, 2, 3})
    for (const TrainedRows& each : trained_on_rows({{1}}, 3, number, 1, DType::f32))
      EXPECT_TRUE(each == alone) << number;
}

TEST(StepRows, MayNotNeedMoreMicroBatchesThanTheEngineWasMadeFor) {
  for (const TrainedRows& each : trained_on_rows({{6, 7}}, 2, 1, 2, DType::f32))
    EXPECT_EQ(each.losses.size(), 5u) << each.error;
  for (const TrainedRows& each : trained_on_rows({{6, 14}}, 2, 1, 2, DType::f32))
    EXPECT_EQ(each.error,
              "step 2 has 14 rows, in 4 micro-batches on each rank, but the engine was made for 3; a step may have "
              "fewer rows than batch.global, and no more");
}

TEST(StepRows, AreTheSameOnAllRanks) {
  for (const TrainedRows& each : trained_on_rows({{6, 6, 5}, {6, 6, 5}, {6, 6, 4}}, 3, 2, 2, DType::f32))
    EXPECT_EQ(each.error,
              "ranks find other numbers of rows after step 2: rank 0 has 5, rank 2 has 4; give all the same data");
}

// What the check says on each of three ranks, which have these training data.
std::vector<std::string> complaints(const std::function<Data(const Context&, int rank)>& data) {
  std::vector<std::string> told(3);
  run_ranks(3, [&](Communicator& ranks) {
    const Data mine = data(testing::context(1), ranks.rank());
    told[static_cast<std::size_t>(ranks.rank())] = error_of([&] { check_batches(mine, 2, 9, ranks); });
  });
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(told[0], told[2]);
  return told;
}

TEST(BatchCheck, NamesTheRankWhoseBatchesAreOthers) {
  const auto source = [](const Context& context, std::vector<std::int64_t> rows, DType dtype, const char* field,
                         std::int64_t steps = BatchSource::kEndless) {
    return std::make_shared<VaryingRows>(context, std::move(rows), dtype, field, steps);
  };
  EXPECT_EQ(complaints([&](const Context& context, int) {
              return Data{.training = source(context, {2, 3}, DType::f32, "x"),
                          .validation = {{"", source(context, {4}, DType::f32, "x", 2)},
                                         {"none", source(context, {4}, DType::f32, "y", 0)}}};
            })[0],
            "");
  EXPECT_EQ(complaints([&](const Context& context, int rank) {
              return Data{.training = source(context, {2}, DType::f32, rank == 1 ? "y" : "x")};
            })[0],
            "ranks find other batches: rank 0 has x f32 (rows, 5), rank 1 has y f32 (rows, 5)");
  EXPECT_EQ(complaints([&](const Context& context, int rank) {
              return Data{.training = source(context, {2, 2, 2, rank == 2 ? 1 : 2}, DType::f32, "x")};
            })[0],
            "ranks find other batches: rank 0 has step 4 of 2 rows, rank 2 has step 4 of 1 rows");
  EXPECT_EQ(complaints([&](const Context& context, int) {
              return Data{.training = source(context, {2}, DType::f32, "x"),
                          .validation = {{"late", source(context, {2}, DType::f32, "y", 1)}}};
            })[0],
            "the validation set 'late' has no field 'x', which the training data has");
  EXPECT_EQ(complaints([&](const Context& context, int) {
              return Data{.training = source(context, {2}, DType::f32, "x"),
                          .validation = {{"", source(context, {2}, DType::f64, "x", 1)}}};
            })[0],
            "the validation set has the field x as f64 (1, 5), and the training data as f32 (1, 5)");
  EXPECT_EQ(complaints([&](const Context& context, int) {
              return Data{.training = source(context, {2}, DType::f32, "x", 8)};
            })[0],
            "the training data ends after 8 steps, but the run has 9; set steps to no more");
}

}  // namespace
}  // namespace keel
