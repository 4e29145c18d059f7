// A loss of several terms on its way into the engine.

#include "keel/trainer/step_loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/optim/optimizer.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

struct TwoTerms {
  Context context = testing::context(1);
  Linear net{3, 2};
  Sharded engine{net, context, make_sgd()};
  Batch batch{context, 0, 4};
  Variable first, second;

  TwoTerms() {
    batch.set_weight("pairs", 6);
    const Variable out = net(Variable(testing::uniform_tensor(context, {4, 3}, 1)));
    first = mean(square(out));
    second = mean(out);
  }
};

double loss_of(const Loss& loss, const Batch& batch) {
  const StepLoss numbers(loss, batch);
  std::vector<double> sums(StepLoss::kSums * numbers.kinds().size());
  numbers.add_to(sums);
  return loss_of(numbers.kinds(), sums);
}

TEST(StepLoss, IsTheSumOfTermsTimesTheirFactors) {
  TwoTerms terms, whole;
  Loss loss;
  loss.add("first", terms.first, "rows", 0.5).add("second", terms.second, "rows", 3);
  const double expected = 0.5 * terms.first.value().item() + 3 * terms.second.value().item();
  EXPECT_NEAR(loss_of(loss, terms.batch), expected, 1e-7);
  backward(terms.engine, loss, terms.batch, {}, true);
  EXPECT_EQ(terms.engine.weight(), 4);
  whole.engine.backward(add(scale(whole.first, 0.5), scale(whole.second, 3)), {.weight = 4});
  EXPECT_NEAR(terms.engine.step(0.1).get().grad_norm, whole.engine.step(0.1).get().grad_norm, 1e-6);
}

TEST(StepLoss, OfASumIsItsMean) {
  TwoTerms terms, whole;
  Loss loss;
  loss.add_sum("sum", scale(terms.first, 4), "rows");
  EXPECT_NEAR(loss_of(loss, terms.batch), terms.first.value().item(), 1e-6);
  backward(terms.engine, loss, terms.batch, {}, true);
  whole.engine.backward(whole.first, {.weight = 4});
  EXPECT_NEAR(terms.engine.step(0.1).get().grad_norm, whole.engine.step(0.1).get().grad_norm, 1e-6);
}

TEST(StepLoss, AddsUpWhatHasWeightAndFindsWhatIsNotFinite) {
  TwoTerms terms;
  terms.batch.set_weight("none", 0);
  const double bad = std::numeric_limits<double>::quiet_NaN();
  Loss loss;
  loss.add("nothing", scale(terms.first, bad), "none")
      .add("first", terms.first, "rows")
      .log("seen", terms.second.value(), "pairs");
  const StepLoss numbers(loss, terms.batch);
  std::vector<double> sums(StepLoss::kSums * 3, 1);
  numbers.add_to(sums);
  EXPECT_EQ(sums[0], 1) << "a mean over nothing poisons no other";
  EXPECT_EQ(sums[2], 1 + 4 * terms.first.value().item());
  EXPECT_EQ(mean_of_term(std::span(sums).subspan(2), 0), sums[2] / 5);
  EXPECT_EQ(sums[5], 7);
  EXPECT_FALSE(numbers.first_bad()->has_weight);
  loss.add("second", scale(terms.second, bad), "rows");
  EXPECT_EQ(StepLoss(loss, terms.batch).first_bad()->term, 2) << "one that has weight says more";
}

TEST(StepLoss, RefusesTermsOfDifferentWeightsThatNobodyHasAddedUp) {
  TwoTerms terms;
  Loss loss;
  EXPECT_NE(error_of([&] { backward(terms.engine, loss, terms.batch, {}, true); }).find("no term"), std::string::npos);
  loss.add("first", terms.first, "rows").add("second", terms.second, "pairs");
  EXPECT_NE(error_of([&] { backward(terms.engine, loss, terms.batch, {}, true); }).find("rows and pairs"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              backward(terms.engine, loss, terms.batch, {{"rows"}, {4}}, true);
            }).find("mean over pairs"),
            std::string::npos);
  EXPECT_NE(error_of([&] { StepLoss(Loss(terms.first, "tokens"), terms.batch); }).find("no weight 'tokens'"),
            std::string::npos);
}

TEST(StepLoss, OfOneNumberTakesAnotherAndOneOfSeveralDoesNot) {
  TwoTerms terms;
  Loss loss;
  loss.add("first", terms.first, "rows", 2);
  const Tensor seven = from_values(terms.context, std::vector<float>{7}, {});
  const StepLoss other = StepLoss(loss, terms.batch).with(seven);
  std::vector<double> sums(StepLoss::kSums);
  other.add_to(sums);
  EXPECT_EQ(sums, (std::vector<double>{28, 4}));
  EXPECT_EQ(other.kinds().front().name, "first");
  EXPECT_EQ(loss_of(other.kinds(), sums), 14);
  loss.log("seen", terms.second.value(), "pairs");
  EXPECT_EQ(error_of([&] { (void)StepLoss(loss, terms.batch).with(seven); }), "a loss of 2 numbers was given one");
  EXPECT_EQ(error_of([&] { (void)StepLoss().with(seven); }), "a loss of 0 numbers was given one");
}

}  // namespace
}  // namespace keel
