// What the engine and operations refuse, and what they just take.

#include <gtest/gtest.h>

#include <functional>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

class Refusals : public ::testing::Test {
 protected:
  Variable made(const Dims& shape, bool requires_grad = false) const {
    return Variable(testing::uniform_tensor(context_, shape, 1), requires_grad);
  }
  Context context_ = testing::context(1);
};

TEST_F(Refusals, BackwardNeedsALossOfOneElementThatDependsOnSomething) {
  const Variable x = made({3}, true);
  EXPECT_EQ(error_of([&] { backward(x); }).find("backward needs a loss of one element, got "), 0U);
  EXPECT_EQ(error_of([&] { backward(made({0}, true)); }).find("backward needs a loss of one element, got "), 0U);
  EXPECT_NE(error_of([] { backward(Variable()); }), "");
  const std::string nothing = ": it depends on nothing that requires a gradient";
  EXPECT_EQ(error_of([&] { backward(sum(made({3}))); }), "backward from output 0" + nothing);
  const std::vector<Variable> outputs = {sum(x), sum(made({3}))};
  const Tensor one = testing::tensor_of(context_, {1}, {});
  EXPECT_EQ(error_of([&] { backward(outputs, std::vector{one, one}); }), "backward from output 1" + nothing);
  EXPECT_EQ(error_of([&] { backward(outputs, std::vector{one}); }), "backward got 2 outputs and 1 gradients");
  const std::vector<Variable> wide = {sum(x), square(x)};
  EXPECT_EQ(error_of([&] {
              backward(wide, std::vector{one, one});
            }),
            "backward from output 1 of shape (3) got a gradient of shape ()");
  const NoGrad no_grad;
  EXPECT_EQ(error_of([&] { backward(sum(x)); }).find("backward was called inside NoGrad"), 0U);
}

TEST_F(Refusals, GradientsAreOfLeavesAndOfNumbersWithAPoint) {
  const Variable x = made({3}, true);
  EXPECT_NE(error_of([&] { (void)square(x).grad(); }).find("was computed by square"), std::string::npos);
  EXPECT_NE(error_of([&] { Variable(zeros(context_, {2}, DType::i64), true); }).find("integers have no gradient"),
            std::string::npos);
  EXPECT_FALSE(made({3}).grad().defined());
  made({3}).zero_grad();
  EXPECT_EQ(error_of([&] { (void)made({3}).row_grad(); }).find("the gradient of this "), 0U);
}

TEST_F(Refusals, ABackwardThatAsksForAnInputThatIsNotThereIsTold) {
  const Variable x = made({3}, true);
  const auto refusal = [&](const std::function<void(const Need&)>& ask) {
    const Variable y = record("odd", x.value(), {x}, {},
                              [ask](const Saved&, std::span<const Tensor> grad, const Need& need) -> Gradients {
                                ask(need);
                                return {grad[0]};
                              });
    return error_of([&] { backward(sum(y)); });
  };
  EXPECT_EQ(refusal([](const Need& need) { (void)need[0]; }), "");
  const std::string told = "odd has 1 inputs, but its backward asks for number 1";
  EXPECT_EQ(refusal([](const Need& need) { (void)need[1]; }), told);
  EXPECT_EQ(refusal([](const Need& need) { (void)need.destination(1); }), told);
  EXPECT_EQ(refusal([](const Need& need) { (void)need.sparse_leaf(1); }), told);
}

TEST_F(Refusals, LinearNeedsAWeightAndABiasThatFit) {
  const auto refusal = [&](const Dims& x, const Dims& weight, const Dims& bias) {
    return error_of([&] { linear(made(x), made(weight), made(bias)); });
  };
  EXPECT_EQ(refusal({3}, {2, 3}, {2}), "");
  EXPECT_EQ(refusal({4, 3}, {3, 3}, {3}), "");
  for (const auto& [x, weight] :
       {std::pair<Dims, Dims>{{3, 4}, {2, 3}}, {{3, 2}, {2, 3}}, {{3}, {3}}, {{3}, {1, 2, 3}}, {{}, {2, 3}}})
    EXPECT_EQ(refusal(x, weight, {2}), concat("linear: x ", x, " does not fit the weight ", weight, " (out, in)"));
  for (const Dims& bias : {Dims{3}, {1}, {}, {2, 1}, {1, 2}})
    EXPECT_EQ(refusal({4, 3}, {2, 3}, bias), concat("linear: bias ", bias, " does not fit the weight (2, 3)"));
  EXPECT_EQ(error_of([&] { linear_gelu(made({3}), made({2, 3}), {}); }), "linear_gelu needs a bias");
}

TEST_F(Refusals, TermsOfLowRankNeedShapesThatFitTheirLayer) {
  const auto refusal = [&](const Dims& a, const Dims& b, std::int64_t first_row = 0, const Dims& x = {4, 3}) {
    const LowRankTerm term = {.a = made(a), .b = made(b), .first_row = first_row, .x = made(x)};
    return error_of([&] { linear_low_rank(made({4, 3}), made({5, 3}), {}, std::span(&term, 1)); });
  };
  EXPECT_EQ(refusal({2, 3}, {5, 2}), "");
  EXPECT_EQ(refusal({2, 3}, {1, 2}, 4), "");
  EXPECT_EQ(refusal({2, 3}, {1, 2}, 0, {2, 2, 3}), "");
  for (const auto& [a, b] : {std::pair<Dims, Dims>{{2, 4}, {5, 2}},
                             {{3}, {5, 2}},
                             {{1, 2, 3}, {5, 2}},
                             {{2, 3}, {2}},
                             {{2, 3}, {1, 5, 2}},
                             {{2, 3}, {5, 3}}})
    EXPECT_EQ(refusal(a, b), concat("linear_low_rank: a ", a, " (rank, in) and b ", b,
                                    " (rows, rank) do not fit the weight (5, 3) (out, in)"));
  EXPECT_NE(refusal({2, 3}, {5, 2}, 1).find("outputs 1 to 6 are not among the 5"), std::string::npos);
  EXPECT_NE(refusal({2, 3}, {5, 2}, -1).find("outputs -1 to 4 are not among the 5"), std::string::npos);
  for (const Dims& x : {Dims{4, 2}, {3, 3}, {3, 4}, {6, 2}})
    EXPECT_EQ(refusal({2, 3}, {5, 2}, 0, x),
              concat("linear_low_rank: x of a term ", x, " does not fit the x (4, 3) of the layer"));
}

TEST_F(Refusals, PackedAttentionNeedsHeadsThatFit) {
  const auto refusal = [&](const Dims& shape, int heads, int kv_heads) {
    return error_of([&] { attention_packed(made(shape), heads, kv_heads, {}); });
  };
  EXPECT_EQ(refusal({2, 3, 12}, 1, 1), "");
  EXPECT_EQ(refusal({2, 3, 12}, 2, 1), "");
  for (const auto& [shape, heads, kv_heads] : {std::tuple<Dims, int, int>{{2, 3, 12}, 0, 1},
                                               {{2, 3, 12}, 1, 0},
                                               {{2, 3, 12}, 0, 0},
                                               {{2, 3, 15}, 3, 2},
                                               {{2, 3, 13}, 1, 1},
                                               {{3, 12}, 1, 1},
                                               {{1, 2, 3, 12}, 1, 1},
                                               {{2, 3, 12}, -1, 1}})
    EXPECT_NE(refusal(shape, heads, kv_heads).find("does not hold "), std::string::npos) << shape << heads << kv_heads;
  EXPECT_NE(refusal({2, 3, 13}, 2, 1).find("2 query and 2 x 1 key/value heads"), std::string::npos);
}

TEST_F(Refusals, SplitNeedsPartsOfOneLength) {
  const Variable x = made({6}, true);
  EXPECT_EQ(split(x, 1, 0).size(), 1U);
  EXPECT_EQ(split(x, 6, -1).size(), 6U);
  for (const int parts : {0, -1, 4})
    EXPECT_EQ(error_of([&] { split(x, parts, 0); }), concat("split: dimension 0 of (6) is not a multiple of ", parts));
}

TEST_F(Refusals, ADropoutOfNothingIsTheVariableItself) {
  const Variable x = made({2, 3, 4}, true);
  const Tensor ids = from_values<std::int64_t>(context_, {0, 1}, {2});
  EXPECT_EQ(dropout(x, 0, {}, ids).leaf(), x.leaf());
  EXPECT_EQ(cast(x, x.dtype()).leaf(), x.leaf());
  EXPECT_EQ(doubles(dropout(x, 1, {}, ids).value()), std::vector<double>(24));
  for (const double probability : {-0.1, 1.1}) EXPECT_NE(error_of([&] { dropout(x, probability, {}, ids); }), "");
}

TEST_F(Refusals, MeanSquaredErrorNeedsOneShape) {
  EXPECT_EQ(error_of([&] { mse_loss(made({3}), made({1})); }),
            "mse_loss: prediction (3) and target (1) differ in shape");
}

}  // namespace
}  // namespace keel
