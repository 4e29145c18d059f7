#include "keel/tasks/loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/autograd/functions.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

// A scalar that depends on a weight.
Variable trained(const Context& context, double value, DType dtype = DType::f32) {
  const Variable weight(testing::tensor_of(context, {value}, {1}, dtype), true);
  return mean(weight);
}

TEST(Loss, HasOneTermWithoutAName) {
  const Context context = testing::context(1);
  const Loss loss = trained(context, 2);
  ASSERT_EQ(loss.terms().size(), 1u);
  EXPECT_EQ(loss.terms().front().weight, "rows");
  EXPECT_EQ(Loss(trained(context, 2), "tokens").terms().front().weight, "tokens");
}

TEST(Loss, KeepsTermsInOrderAndCastsNarrowOnes) {
  const Context context = testing::context(1);
  Loss loss;
  loss.add("first", trained(context, 2, DType::bf16), "tokens", 0.5).across_rows();
  loss.add_sum("second", trained(context, 3), "rows", 2);
  loss.add_regularizer("third", trained(context, 4), 1e-4);
  loss.log("seen", testing::tensor_of(context, {7}, {}), "rows");
  ASSERT_EQ(loss.terms().size(), 3u);
  EXPECT_EQ(loss.terms()[0].value.dtype(), DType::f32);
  EXPECT_TRUE(loss.terms()[0].crosses_rows);
  EXPECT_TRUE(loss.terms()[1].is_sum);
  EXPECT_EQ(loss.terms()[2].weight, "rows");
  EXPECT_EQ(loss.logged().front().name, "seen");
}

// The formula of the header, over micro-batches of any division.
TEST(Loss, TermsOfAnyDivisionAddUpToTheWholesLoss) {
  const double values[] = {2, 5, 11, 7}, weights[] = {3, 0, 4, 1};  // of a term that is a mean
  const double divisor = 20, total = 8, factor = 0.3;
  const LossTerm mean{.name = "a", .weight = "w", .factor = factor}, sum{.name = "b", .factor = factor, .is_sum = true};
  double as_means = 0, as_sums = 0, expected = 0;
  for (int m = 0; m < 4; ++m) {
    as_means += mean.factor_of(weights[m], total, divisor) * values[m] / divisor;
    as_sums += sum.factor_of(weights[m], total, divisor) * weights[m] * values[m] / divisor;
    expected += factor * weights[m] * values[m] / total;
  }
  EXPECT_NEAR(as_means, expected, 1e-15);
  EXPECT_NEAR(as_sums, expected, 1e-15);
  EXPECT_EQ(mean.factor_of(0, 0, divisor), 0);
  EXPECT_EQ(sum.factor_of(0, total, divisor), 0) << "a stand-in's rows are another's";
  EXPECT_EQ(LossTerm{}.factor_of(771, 65'409, 65'409), 771) << "a single term counts by its weight alone";
}

TEST(Loss, SignatureTellsWhatRanksMustHaveInCommon) {
  const Context context = testing::context(1);
  const auto of = [&](const char* name, const char* weight, double factor, double value) {
    return Loss().add(name, trained(context, value), weight, factor).signature();
  };
  const std::uint64_t first = of("a", "tokens", 0.5, 1);
  EXPECT_EQ(of("a", "tokens", 0.5, 2), first) << "values differ";
  EXPECT_NE(of("b", "tokens", 0.5, 1), first);
  EXPECT_NE(of("a", "rows", 0.5, 1), first);
  EXPECT_NE(of("a", "tokens", 0.25, 1), first);
  EXPECT_NE(Loss().add_sum("a", trained(context, 1), "tokens", 0.5).signature(), first);
  EXPECT_NE(Loss()
                .add("a", trained(context, 1), "tokens", 0.5)
                .log("c", testing::tensor_of(context, {1}, {}), "rows")
                .signature(),
            first);
}

TEST(Loss, IsDescribedTermByTerm) {
  const Context context = testing::context(1);
  Loss loss;
  loss.add("fit", trained(context, 1), "tokens", 0.1).across_rows();
  loss.add_sum("size", trained(context, 1), "rows").log("seen", testing::tensor_of(context, {1}, {}), "rows");
  EXPECT_EQ(loss.description(),
            "term 'fit', a mean over tokens, across rows, times 0.1\nterm 'size', a sum over rows, times 1\n"
            "'seen', logged as a mean over rows\n");
  EXPECT_EQ(Loss(trained(context, 1)).description(), "the loss, a mean over rows, times 1\n");
}

TEST(Loss, RefusesWhatIsNoTerm) {
  const Context context = testing::context(1);
  const Variable one = trained(context, 1);
  const auto refusal = [&](auto&& add) {
    return error_of([&] {
      Loss loss;
      add(loss);
    });
  };
  EXPECT_NE(refusal([&](Loss& loss) { loss.add("lr", one, "rows"); }).find("keel's own name"), std::string::npos);
  EXPECT_NE(refusal([&](Loss& loss) { loss.add("a b", one, "rows"); }).find("no name of a term"), std::string::npos);
  EXPECT_NE(refusal([&](Loss& loss) { loss.add("a", one, "rows").add("a", one, "rows"); }).find("'a' already"),
            std::string::npos);
  EXPECT_NE(
      refusal([&](Loss& loss) { loss.add("a", one, "rows", std::numeric_limits<double>::infinity()); }).find("finite"),
      std::string::npos);
  EXPECT_NE(refusal([&](Loss& loss) {
              loss.add("a", Variable(testing::tensor_of(context, {1}, {})), "rows");
            }).find("does not depend on any trained parameter"),
            std::string::npos);
  EXPECT_NE(refusal([&](Loss& loss) { loss.across_rows(); }).find("there is none"), std::string::npos);
  const Variable two(testing::tensor_of(context, {1, 2}, {2}), true);
  EXPECT_NE(refusal([&](Loss& loss) { loss.add("a", two, "rows"); }).find("one floating number"), std::string::npos);
  EXPECT_NE(error_of([&] { Loss(one).add("a", one, "rows"); }).find("without a name"), std::string::npos);
}

}  // namespace
}  // namespace keel
