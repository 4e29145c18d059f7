// A loss of several terms, each a mean over a weight of its own.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/autograd/functions.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kTermWidth = 5, kTermRows = 12;
constexpr double kSecondFactor = 0.7;

// The rows that the second term is a mean over; none in some micro-batches.
bool is_marked(std::int64_t row) { return row % 5 == 1 && row > 2; }

struct TermPart {
  Tensor x, y;
  std::int64_t rows = 0, marked = 0;
  Variable first, second;  // means over rows and over marked ones; the second is 0 over none

  TermPart(const Context& context, UnitNet& net, std::int64_t begin, std::int64_t end) : rows(end - begin) {
    const Tensor all = uniform_tensor(context, {kTermRows, kTermWidth}, 3, DType::f64),
                 wanted = uniform_tensor(context, {kTermRows, kTermWidth}, 4, DType::f64);
    x = all.slice(0, begin, end);
    y = wanted.slice(0, begin, end);
    std::vector<double> marks;
    for (std::int64_t row = begin; row < end; ++row) marks.push_back(is_marked(row) ? 1 : 0);
    for (const double mark : marks) marked += mark > 0 ? 1 : 0;
    const Variable out = net(x);
    first = mse_loss(out, Variable(y));
    const Tensor mask = kernels::cast(from_values(context, marks, {rows, 1}), DType::f64);
    second = scale(sum(mul(square(out), Variable(mask))), 1.0 / static_cast<double>(std::max<std::int64_t>(marked, 1)));
  }
};

std::int64_t marked_rows() {
  std::int64_t marked = 0;
  for (std::int64_t row = 0; row < kTermRows; ++row) marked += is_marked(row) ? 1 : 0;
  return marked;
}

ShardedOptions in_double(int number, int micro_batches) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::f64);
  options.micro_batches = micro_batches;
  return options;
}

// Weights and norm after a step in which the loss is the mean over all rows, and kSecondFactor times that over marked
// ones.
std::vector<double> step_in_parts(int ranks, int number, int micro_batches) {
  std::vector<double> outcome;
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net(kTermWidth, 3);
    Sharded engine(net, context, comm, make_sgd(), in_double(number, micro_batches));
    const double of_second = kSecondFactor * static_cast<double>(kTermRows) / static_cast<double>(marked_rows());
    const std::int64_t parts = static_cast<std::int64_t>(ranks) * micro_batches;
    for (int micro = 0; micro < micro_batches; ++micro) {
      const std::int64_t at = static_cast<std::int64_t>(comm.rank()) * micro_batches + micro;
      const TermPart part(context, net, kTermRows * at / parts, kTermRows * (at + 1) / parts);
      const WeightedLoss terms[] = {{part.first, static_cast<double>(part.rows)},
                                    {part.second, of_second * static_cast<double>(part.marked)}};
      engine.backward(terms, {.weight = part.rows, .last = micro + 1 == micro_batches});
    }
    const StepResult result = engine.step(0.1).get();
    EXPECT_EQ(result.weight, kTermRows);
    std::vector<double> weights = whole_values(engine);
    weights.push_back(result.grad_norm);
    if (comm.rank() + 1 == comm.size()) outcome = std::move(weights);
  });
  return outcome;
}

std::vector<double> step_of_the_sum() {
  const Context context = testing::context(1);
  UnitNet net(kTermWidth, 3);
  Sharded engine(net, context, make_sgd(), in_double(0, 1));
  const TermPart all(context, net, 0, kTermRows);
  engine.backward(add(all.first, scale(all.second, kSecondFactor)), {.weight = kTermRows});
  const StepResult result = engine.step(0.1).get();
  std::vector<double> weights = whole_values(engine);
  weights.push_back(result.grad_norm);
  return weights;
}

TEST(LossTerms, HaveTheGradientOfTheirSumHoweverRowsAreDivided) {
  const std::vector<double> whole = step_of_the_sum();
  for (const int ranks : {1, 2, 3})
    for (const int micro_batches : {1, 2, 4}) {
      const std::vector<double> first = step_in_parts(ranks, 0, micro_batches);
      ASSERT_EQ(first.size(), whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_NEAR(first[i], whole[i], 1e-13) << ranks << " ranks, " << micro_batches << " micro-batches";
      for (const int number : {1, 2, 3})
        EXPECT_EQ(step_in_parts(ranks, number, micro_batches), first) << "stage " << number << " on " << ranks;
    }
}

TEST(LossTerms, AreTheLossItselfWhereThereIsOneOfItsWeight) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto train = [&](bool as_term) {
      const Context context = testing::context(1);
      UnitNet net(kTermWidth, 3);
      ShardedOptions options;
      options.policy = PrecisionPolicy::of(dtype);
      options.loss_scale = 64;
      Sharded engine(net, context, make_adamw(), options);
      for (int step = 0; step < 3; ++step) {
        const Variable loss = mean(square(net(uniform_tensor(context, {7, kTermWidth}, 5, dtype))));
        const WeightedLoss term{loss, 7};
        if (as_term) engine.backward(std::span(&term, 1), {.weight = 7});
        else engine.backward(loss, {.weight = 7});
        engine.step(0.1);
      }
      return whole_values(engine);
    };
    EXPECT_EQ(train(true), train(false)) << dtype;
  }
}

TEST(LossTerms, OfFactorZeroTakePartAndTrainNothing) {
  std::vector<std::vector<double>> outcomes;
  for (const bool is_there : {false, true})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      UnitNet net(kTermWidth, 3);
      Sharded engine(net, context, comm, make_sgd(), in_double(3, 1));
      const TermPart part(context, net, 4 * comm.rank(), 4 * (comm.rank() + 1));
      const double rows = comm.rank() == 1 ? 0 : 4;
      std::vector<WeightedLoss> terms = {{part.first, rows}};
      if (is_there) terms.push_back({part.second, 0});
      engine.backward(terms, {.weight = rows});
      engine.step(0.1);
      std::vector<double> weights = whole_values(engine);
      if (comm.rank() == 0) outcomes.push_back(std::move(weights));
    });
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

TEST(LossTerms, CountWhereTheFirstOnesWeightIsZero) {
  const Context context = testing::context(1);
  UnitNet net(kTermWidth, 1);
  Sharded engine(net, context, make_sgd(), in_double(0, 2));
  const Tensor x = uniform_tensor(context, {2, kTermWidth}, 5, DType::f64);
  const WeightedLoss unseen[] = {{mean(net(x)), 0}, {mean(square(net(x))), 3}};
  engine.backward(unseen, {.weight = 0, .last = false});
  const WeightedLoss seen[] = {{mean(net(x)), 0}, {mean(square(net(x))), 0}};
  engine.backward(seen, {.weight = 2});
  EXPECT_GT(engine.step(0.1).get().grad_norm, 0);
}

TEST(LossTerms, RefuseWhatIsNoWeight) {
  const Context context = testing::context(1);
  UnitNet net(kTermWidth, 1);
  Sharded engine(net, context, make_sgd());
  const Variable loss = mean(net(uniform_tensor(context, {2, kTermWidth}, 5)));
  const double endless = std::numeric_limits<double>::infinity();
  for (const double weight : {-1.0, endless, std::nan("")})
    EXPECT_NE(error_of([&] { engine.backward(loss, {.weight = weight}); }).find("must be finite"), std::string::npos);
  const WeightedLoss term{loss, endless};
  EXPECT_NE(error_of([&] { engine.backward(std::span(&term, 1)); }).find("factor"), std::string::npos);
  EXPECT_NE(error_of([&] { engine.backward(std::span<const WeightedLoss>()); }).find("needs a loss"),
            std::string::npos);
  engine.backward(loss);
  EXPECT_TRUE(engine.step(0.1).get().taken) << "what was refused has changed nothing";
}

}  // namespace
}  // namespace keel
