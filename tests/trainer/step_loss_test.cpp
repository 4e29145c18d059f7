// A loss of several terms on its way into the engine.

#include "keel/trainer/step_loss.h"

#include <gtest/gtest.h>

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

TEST(StepLoss, IsTheSumOfTermsTimesTheirFactors) {
  TwoTerms terms, whole;
  Loss loss;
  loss.add("first", terms.first, "rows", 0.5).add("second", terms.second, "rows", 3);
  const double expected = 0.5 * terms.first.value().item() + 3 * terms.second.value().item();
  const StepLoss number(loss, terms.batch);
  EXPECT_EQ(number.weight(), 4);
  EXPECT_NEAR(number.get(), expected, 1e-7);
  backward(terms.engine, loss, terms.batch, true);
  whole.engine.backward(add(scale(whole.first, 0.5), scale(whole.second, 3)), {.weight = 4});
  EXPECT_NEAR(terms.engine.step(0.1).get().grad_norm, whole.engine.step(0.1).get().grad_norm, 1e-6);
}

TEST(StepLoss, OfASumIsItsMean) {
  TwoTerms terms, whole;
  Loss loss;
  loss.add_sum("sum", scale(terms.first, 4), "rows");
  EXPECT_NEAR(StepLoss(loss, terms.batch).get(), terms.first.value().item(), 1e-6);
  backward(terms.engine, loss, terms.batch, true);
  whole.engine.backward(whole.first, {.weight = 4});
  EXPECT_NEAR(terms.engine.step(0.1).get().grad_norm, whole.engine.step(0.1).get().grad_norm, 1e-6);
}

TEST(StepLoss, RefusesTermsOfDifferentWeightsAndOfNone) {
  TwoTerms terms;
  Loss loss;
  EXPECT_NE(error_of([&] { backward(terms.engine, loss, terms.batch, true); }).find("no term"), std::string::npos);
  loss.add("first", terms.first, "rows").add("second", terms.second, "pairs");
  EXPECT_NE(error_of([&] { backward(terms.engine, loss, terms.batch, true); }).find("rows and pairs"),
            std::string::npos);
  EXPECT_NE(error_of([&] { StepLoss(Loss(terms.first, "tokens"), terms.batch); }).find("no weight 'tokens'"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
