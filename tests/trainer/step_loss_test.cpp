// A loss of several terms on its way into the engine.

#include "keel/trainer/step_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

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

TEST(StepLoss, OfWeightsBelowOneIsAMeanAsOfOthers) {
  const std::vector<TermKind> kinds = {{"a", "rows", 2}, {"b", "pairs", 3}, {"seen", "rows", 0, false, true}};
  EXPECT_EQ(loss_of(kinds, std::vector<double>{1, 0.5, 3, 4, 7, 1}), 2 * 2 + 3 * 0.75);
  EXPECT_EQ(loss_of(kinds, std::vector<double>{1, 0.5, 3, 0, 7, 1}), 2 * 2) << "a term without weight counts nothing";
  EXPECT_EQ(loss_of(kinds, std::vector<double>{1, 0, 3, 1, 7, 1}), 3 * 3);
  EXPECT_TRUE(std::isnan(loss_of(kinds, std::vector<double>{1, 0, 3, 0, 7, 1}))) << "what is logged is none of it";
  const std::vector<double> sums = {1, 0.5, 3, 0, 6, 4};
  EXPECT_EQ(mean_of_term(sums, 0), 2);
  EXPECT_TRUE(std::isnan(mean_of_term(sums, 1)));
  EXPECT_EQ(mean_of_term(sums, 2), 1.5);
}

TEST(StepLoss, AddsMeansTimesTheirWeightsAndSumsAsTheyAre) {
  TwoTerms terms;
  terms.batch.set_weight("one", 1);
  terms.batch.set_weight("half", 0.5);
  terms.batch.set_weight("none", 0);
  Loss loss;
  loss.add("a", terms.first, "one", 2)
      .add_sum("b", terms.second, "half", 3)
      .add("c", terms.first, "none")
      .log("seen", terms.second.value(), "pairs");
  const StepLoss numbers(loss, terms.batch);
  const double first = terms.first.value().item(), second = terms.second.value().item();
  std::vector<double> sums(8, 10);
  numbers.add_to(sums);
  EXPECT_EQ(sums, (std::vector<double>{10 + first, 11, 10 + second, 10.5, 10, 10, 10 + 6 * second, 16}));
  std::vector<double> factors;
  std::string flags;
  for (const TermKind& kind : numbers.kinds()) {
    factors.push_back(kind.factor);
    flags += concat(kind.name, kind.is_sum ? " sum" : "", kind.is_logged ? " logged" : "", ';');
  }
  EXPECT_EQ(factors, (std::vector<double>{2, 3, 1, 0}));
  EXPECT_EQ(flags, "a;b sum;c;seen logged;");
  std::vector<double> few(6);
  EXPECT_EQ(error_of([&] { numbers.add_to(few); }), "the loss has 4 numbers and not 3");
  const std::vector<std::string> names = {"half", "pairs"};
  const std::vector<Batch> batches = {terms.batch, terms.batch};
  EXPECT_EQ(sum_weights(names, batches), (std::vector<double>{1, 12}));
  EXPECT_EQ(weights_of(loss), (std::vector<std::string>{"one", "half", "none"}));
}

TEST(StepLoss, NamesTheFirstTermThatIsNotFinite) {
  TwoTerms terms;
  terms.batch.set_weight("half", 0.5);
  terms.batch.set_weight("none", 0);
  const double bad = std::numeric_limits<double>::quiet_NaN();
  const auto first_bad = [&](const auto& add) {
    Loss loss;
    add(loss);
    const auto found = StepLoss(loss, terms.batch).first_bad();
    return found ? concat(found->term, found->has_weight ? " weighs" : " weighs nothing") : "none";
  };
  EXPECT_EQ(first_bad([&](Loss& loss) { loss.add("a", terms.first, "rows").add("b", terms.second, "none"); }), "none");
  EXPECT_EQ(
      first_bad([&](Loss& loss) { loss.add("a", terms.first, "rows").add("b", scale(terms.first, bad), "half"); }),
      "1 weighs");
  EXPECT_EQ(first_bad([&](Loss& loss) {
              loss.add("a", scale(terms.first, bad), "none").add("b", scale(terms.first, bad), "none");
            }),
            "0 weighs nothing");
  EXPECT_EQ(first_bad([&](Loss& loss) {
              loss.add("a", terms.first, "rows").log("seen", scale(terms.first, bad).value(), "rows");
            }),
            "none")
      << "nothing follows from what is logged";
}

// By totals of two weights, of which the first has none in the step, or less than one. Half of each total is here, and
// the engine's weight is half of the one that counts.
TEST(StepLoss, IsDividedByTheFirstWeightThatTheStepHasAnyOf) {
  for (const double left : {0.0, 0.5, 8.0}) {
    TwoTerms terms, whole;
    terms.batch.set_weight("left", left / 2);
    Loss loss;
    loss.add("first", terms.first, "left").add("second", terms.second, "pairs", 3);
    backward(terms.engine, loss, terms.batch, {{"left", "pairs"}, {left, 12}}, true);
    EXPECT_EQ(terms.engine.weight(), left > 0 ? left / 2 : 6);
    whole.engine.backward(add(scale(whole.first, left > 0 ? 1 : 0), scale(whole.second, 3)), {.weight = 1});
    EXPECT_NEAR(terms.engine.step(0.1).get().grad_norm, whole.engine.step(0.1).get().grad_norm, 1e-5) << left;
  }
  TwoTerms terms;
  Loss loss;
  loss.add("first", terms.first, "rows");
  EXPECT_EQ(
      error_of([&] {
        backward(terms.engine, loss, terms.batch, {{"pairs"}, {12}}, true);
      }),
      "a term of the loss is a mean over rows, which no term of the session's first step was; give a term that is "
      "not wanted the factor 0");
}

}  // namespace
}  // namespace keel
