// Losses whose terms are means over different weights: one function of the weights, however rows are divided.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "keel/autograd/functions.h"
#include "keel/optim/lbfgs.h"
#include "keel/trainer/training_step.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kTermWidth = 5, kTermRows = 12;
constexpr double kMarkedFactor = 0.7, kSumFactor = 0.3;

// How much a row of a step counts in the second and third term.
using Marks = std::function<double(std::int64_t step, std::int64_t row)>;

double fractional(std::int64_t step, std::int64_t row) { return row % 5 == step ? 0.1 * static_cast<double>(row) : 0; }
double of_the_last_rows(std::int64_t, std::int64_t row) { return row >= 10 ? 1 : 0; }
double in_every_second_step(std::int64_t step, std::int64_t row) { return step % 2 == 0 && row % 3 == 1 ? 2 : 0; }

class MarkedRows final : public BatchSource {
 public:
  MarkedRows(Context context, DType dtype, Marks marks)
      : context_(std::move(context)), dtype_(dtype), marks_(std::move(marks)) {}
  std::int64_t rows(std::int64_t) const override { return kTermRows; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    const auto seed = static_cast<std::uint64_t>(10 * step);
    std::vector<double> marks;
    double sum = 0;
    for (std::int64_t row = range.begin; row < range.end; ++row) sum += marks.emplace_back(marks_(step, row));
    Batch batch(context_, kTermRows * step + range.begin, range.end - range.begin);
    for (const auto& [name, of] : {std::pair("x", seed), std::pair("y", seed + 1)})
      batch.set(name,
                kernels::clone(
                    uniform_tensor(context_, {kTermRows, kTermWidth}, of, dtype_).slice(0, range.begin, range.end)));
    batch.set("marks", kernels::cast(from_values(context_, marks, {batch.rows(), 1}), dtype_));
    batch.set_weight("marked", sum);
    return batch;
  }

 private:
  Context context_;
  DType dtype_;
  Marks marks_;
};

struct Sums {
  Variable fit, marked, size;  // a mean over rows; the sums of marked rows
};

Sums sums_of(const UnitNet& net, const Batch& batch) {
  const Variable out = net(batch["x"]), marks(batch["marks"]);
  return {mse_loss(out, Variable(batch["y"])), sum(mul(square(out), marks)), sum(mul(abs(out), marks))};
}

Loss three_terms(const UnitNet& net, const Batch& batch) {
  const Sums sums = sums_of(net, batch);
  const double marked = batch.weight("marked");
  Loss loss;
  loss.add("fit", sums.fit, "rows");
  loss.add("marked", scale(sums.marked, marked > 0 ? 1 / marked : 0), "marked", kMarkedFactor);
  loss.add_sum("size", sums.size, "marked", kSumFactor);
  loss.log("height", mean(sums.fit).value(), "marked");
  return loss;
}

struct Losses {
  std::vector<double> weights, losses, fits;
  bool operator==(const Losses&) const = default;
};

constexpr std::int64_t kSteps = 4;

TrainingSteps::Parts parts_of(UnitNet& net, Sharded& engine, Communicator& ranks, std::int64_t micro,
                              const Marks& marks, const Context& context) {
  return {.model = net,
          .loss = [&net](const Batch& batch, Forward&) { return three_terms(net, batch); },
          .engine = engine,
          .ranks = ranks,
          .loader = std::make_shared<MarkedRows>(context, engine.options().policy.parameter, marks),
          .micro = micro,
          .curves = {from_values(context, std::vector<double>{0.1}, {1})},
          .last_step = kSteps};
}

ShardedOptions in_double(int number) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::f64);
  options.micro_batches = kTermRows;
  return options;
}

Losses trained_in_parts(int n, int number, std::int64_t micro, const Marks& marks) {
  Losses outcome;
  run_ranks(n, [&](Communicator& comm) {
    const Context context = testing::context(1);
    const auto ranks = comm.split(0, comm.rank());
    UnitNet net(kTermWidth, 3);
    Sharded engine(net, context, comm, make_adamw(), in_double(number));
    TrainingSteps steps(parts_of(net, engine, *ranks, micro, marks, context), 0);
    Losses mine;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const StepOutcome told = steps.next().outcome.value();
      mine.losses.push_back(told.loss);
      ASSERT_EQ(told.terms.size(), 4u);
      EXPECT_EQ(told.terms[3].name, "height");
      mine.fits.push_back(told.terms[0].value);
    }
    mine.weights = whole_values(engine);
    if (comm.rank() + 1 == n) outcome = std::move(mine);
  });
  return outcome;
}

// The formula, of whole batches in one engine.
Losses trained_whole(const Marks& marks) {
  const Context context = testing::context(1);
  UnitNet net(kTermWidth, 3);
  Sharded engine(net, context, make_adamw(), in_double(0));
  const MarkedRows source(context, DType::f64, marks);
  Losses outcome;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = source.load_all(step);
    const Sums sums = sums_of(net, batch);
    const double marked = batch.weight("marked");
    Variable loss = sums.fit;
    if (marked > 0)
      loss = add(loss, add(scale(sums.marked, kMarkedFactor / marked), scale(sums.size, kSumFactor / marked)));
    outcome.losses.push_back(loss.value().item());
    outcome.fits.push_back(sums.fit.value().item());
    engine.backward(loss);
    engine.step(0.1);
  }
  outcome.weights = whole_values(engine);
  return outcome;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-11) << where;
}

TEST(LossWeights, TrainOneFunctionHoweverRowsAreDivided) {
  for (const Marks& marks : {Marks(fractional), Marks(of_the_last_rows), Marks(in_every_second_step)}) {
    const Losses whole = trained_whole(marks);
    for (const int n : {1, 2, 3, 4})
      for (const std::int64_t micro : {1, 12}) {
        const std::string where = concat(n, " ranks, micro-batches of ", micro);
        const Losses first = trained_in_parts(n, 0, micro, marks);
        expect_near(first.weights, whole.weights, where);
        expect_near(first.losses, whole.losses, where);
        expect_near(first.fits, whole.fits, where);
        for (const int number : {1, 2, 3})
          EXPECT_TRUE(trained_in_parts(n, number, micro, marks) == first) << where << ", stage " << number;
      }
  }
}

// What an engine and its step come to with a loss of the test's own.
struct Trained {
  std::vector<double> weights;
  std::vector<StepOutcome> outcomes;
  std::string error;
};

using OwnLoss = std::function<Loss(const UnitNet& net, const Batch& batch, int rank, std::uint64_t step)>;

std::vector<Trained> trained_with(int n, const OwnLoss& loss, const ShardedOptions& options,
                                  std::unique_ptr<Optimizer> (*optimizer)(), std::int64_t micro = 2,
                                  const Marks& marks = fractional) {
  std::vector<Trained> all(static_cast<std::size_t>(n));
  run_ranks(n, [&](Communicator& comm) {
    const Context context = testing::context(1);
    const auto ranks = comm.split(0, comm.rank());
    UnitNet net(kTermWidth, 3);
    Sharded engine(net, context, comm, optimizer(), options);
    TrainingSteps::Parts parts = parts_of(net, engine, *ranks, micro, marks, context);
    parts.loss = [&](const Batch& batch, Forward& pass) { return loss(net, batch, comm.rank(), pass.random.step); };
    Trained& mine = all[static_cast<std::size_t>(comm.rank())];
    TrainingSteps steps(parts, 0);
    mine.error = error_of([&] {
      for (std::int64_t step = 0; step < kSteps; ++step) mine.outcomes.push_back(steps.next().outcome.value());
      mine.weights = whole_values(engine);
    });
  });
  return all;
}

TEST(LossWeights, OfNothingInAStepLeaveTheModelAsItIs) {
  const Marks none_at_first = [](std::int64_t step, std::int64_t row) { return step == 0 ? 0.0 : fractional(1, row); };
  for (const int n : {1, 2, 3}) {
    const std::vector<Trained> all = trained_with(
        n,
        [](const UnitNet& net, const Batch& batch, int, std::uint64_t) {
          Loss loss;
          loss.add_sum("marked", sums_of(net, batch).marked, "marked");
          return loss;
        },
        in_double(n - 1), +[] { return make_adamw(); }, 2, none_at_first);
    for (const Trained& each : all) {
      ASSERT_EQ(each.error, "");
      EXPECT_FALSE(each.outcomes[0].result.taken);
      EXPECT_TRUE(std::isnan(each.outcomes[0].loss) && std::isnan(each.outcomes[0].terms[0].value));
      EXPECT_EQ(each.outcomes[0].result.weight, 0);
      EXPECT_TRUE(each.outcomes[1].result.taken);
      EXPECT_EQ(each.outcomes[3].result.steps_taken, 3);
    }
  }
}

TEST(LossWeights, HaveTheSameBitsInAllStagesWhereALossScaleSkipsSteps) {
  ShardedOptions options = stage(0);
  options.policy = PrecisionPolicy::of(DType::f16);
  options.micro_batches = kTermRows;
  options.scaling = LossScaling::dynamic();
  options.loss_scale = 0x1p16;
  std::vector<double> bits;
  const OwnLoss loss = [](const UnitNet& net, const Batch& batch, int, std::uint64_t) {
    return three_terms(net, batch);
  };
  for (const int number : {0, 1, 2, 3}) {
    options.sharding.stage = number;
    const std::vector<Trained> all = trained_with(
        2, loss, options, +[] { return make_adamw(); });
    ASSERT_EQ(all[0].error, "");
    EXPECT_FALSE(all[0].outcomes.front().result.taken);
    EXPECT_TRUE(all[0].outcomes.back().result.taken);
    if (number == 0) bits = all[0].weights;
    EXPECT_EQ(all[0].weights, bits) << number;
    EXPECT_EQ(all[1].weights, bits) << number;
  }
}

TEST(LossWeights, AreOneFunctionToAnOptimizerThatEvaluatesItSeveralTimes) {
  std::vector<double> alone;
  const OwnLoss loss = [](const UnitNet& net, const Batch& batch, int, std::uint64_t) {
    return three_terms(net, batch);
  };
  for (const int n : {1, 2, 3})
    for (const int number : {0, 3}) {
      const std::vector<Trained> all = trained_with(
          n, loss, in_double(number), +[] { return make_lbfgs(); }, 2, of_the_last_rows);
      ASSERT_EQ(all[0].error, "");
      if (alone.empty()) alone = all[0].weights;
      ASSERT_EQ(all[0].weights.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR(all[0].weights[i], alone[i], 1e-6) << n << number;
      EXPECT_LT(all[0].outcomes.back().loss, all[0].outcomes.front().loss);
    }
}

TEST(LossWeights, AreRefusedOnAllRanksWhereOneHasAnotherLoss) {
  for (const std::uint64_t from : {0U, 2U}) {
    const OwnLoss loss = [&](const UnitNet& net, const Batch& batch, int rank, std::uint64_t step) {
      const Sums sums = sums_of(net, batch);
      Loss loss;
      loss.add("fit", sums.fit, "rows", rank == 1 && step >= from ? 0.25 : 0.5);
      loss.add_sum("size", sums.size, "marked");
      return loss;
    };
    for (const Trained& each : trained_with(
             3, loss, in_double(1), +[] { return make_adamw(); }))
      EXPECT_EQ(each.error, concat("step ", from + 1,
                                   ": ranks have different losses: rank 0 has term 'fit', a mean over rows, times 0.5, "
                                   "rank 1 has term 'fit', a mean over rows, times 0.25"));
  }
}

TEST(LossWeights, KeepTheTermsOfTheFirstStep) {
  const auto told = [](const OwnLoss& loss) {
    return trained_with(
               1, loss, in_double(0), +[] { return make_adamw(); })[0]
        .error;
  };
  const std::string by_step = told([](const UnitNet& net, const Batch& batch, int, std::uint64_t step) {
    return Loss().add(step < 2 ? "fit" : "other", sums_of(net, batch).fit, "rows");
  });
  EXPECT_EQ(
      by_step,
      "step 3: the loss has\nterm 'other', a mean over rows, times 1\nwhich are other terms than in the session's "
      "first step; give a term that is not wanted the factor 0");
  const std::string by_weight = told([](const UnitNet& net, const Batch& batch, int, std::uint64_t step) {
    const Sums sums = sums_of(net, batch);
    return Loss().add("fit", sums.fit, "rows").add_sum("size", sums.size, step < 2 ? "marked" : "rows");
  });
  EXPECT_NE(by_weight.find("step 3: the loss has\n"), std::string::npos) << by_weight;
  int micro = 0;
  const std::string by_micro_batch = told([&](const UnitNet& net, const Batch& batch, int, std::uint64_t) {
    return Loss().add("fit", sums_of(net, batch).fit, "rows", ++micro == 3 ? 2 : 1);
  });
  EXPECT_EQ(by_micro_batch,
            "step 1: the loss of micro-batch 3 has\nterm 'fit', a mean over rows, times 2\nand that of the first has\n"
            "term 'fit', a mean over rows, times 1\nAll micro-batches of a step have the same terms and factors");
}

TEST(LossWeights, MayChangeTheirFactorsFromStepToStep) {
  const OwnLoss loss = [](const UnitNet& net, const Batch& batch, int, std::uint64_t step) {
    const Sums sums = sums_of(net, batch);
    return Loss().add("fit", sums.fit, "rows").add_sum("size", sums.size, "marked", step < 2 ? 0 : 0.5);
  };
  const std::vector<Trained> all = trained_with(
      2, loss, in_double(2), +[] { return make_adamw(); });
  ASSERT_EQ(all[0].error, "");
  EXPECT_EQ(all[0].outcomes[0].loss, all[0].outcomes[0].terms[0].value);
  const std::vector<NamedNumber>& terms = all[0].outcomes[2].terms;
  EXPECT_DOUBLE_EQ(all[0].outcomes[2].loss, terms[0].value + 0.5 * terms[1].value);
}

TEST(LossWeights, AreNoMeanOfNothing) {
  const OwnLoss loss = [](const UnitNet& net, const Batch& batch, int, std::uint64_t) {
    const Sums sums = sums_of(net, batch);
    const double marked = batch.weight("marked");
    Loss loss;
    loss.add("fit", sums.fit, "rows");
    loss.add("marked", scale(sums.marked, marked > 0 ? 1 / marked : std::numeric_limits<double>::quiet_NaN()),
             "marked");
    return loss;
  };
  for (const int n : {1, 2}) {
    const std::string where = n == 1 ? "" : " on rank 0";
    for (const Trained& each : trained_with(
             n, loss, in_double(0), +[] { return make_adamw(); }, 2, of_the_last_rows))
      EXPECT_EQ(each.error, concat("step 1: term 'marked'", where,
                                   " is nan in a micro-batch that has no marked; a mean over nothing must be finite: "
                                   "add it as a sum (add_sum), or let it be 0"));
  }
}

}  // namespace
}  // namespace keel
