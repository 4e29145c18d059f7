// Counts of floating-point operations, by hand.

#include "keel/autograd/flops.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/autograd/checkpoint.h"
#include "keel/autograd/functions.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace testing;

struct ForwardBackward {
  double forward = 0, backward = 0;
};

template <class F>
ForwardBackward flops_of_graph(const F& make) {
  const FlopCount all;
  const Variable out = make();
  const double forward = all.flops();
  backward(sum(out));
  return {forward, all.flops() - forward};
}

Variable leaf(const Context& context, const Dims& shape, bool needs_gradient = true) {
  return Variable(uniform_tensor(context, shape, 1), needs_gradient);
}

TEST(Flops, OfAProductAreTwoForEachPairAndAsManyForEachGradient) {
  const Context context = testing::context();
  for (const auto& [a_needs, b_needs, times] : {std::tuple(true, true, 2), {true, false, 1}, {false, true, 1}}) {
    const Variable a = leaf(context, {3, 4, 5}, a_needs), b = leaf(context, {3, 5, 7}, b_needs),
                   weight = leaf(context, {7, 5}, b_needs), bias = leaf(context, {7}, b_needs);
    for (const auto& product : std::vector<std::function<Variable()>>{
             [&] { return matmul(a, b); }, [&] { return linear(a, weight, bias); },
             [&] { return linear_gelu(a, weight, bias); }, [&] { return linear(a, weight, {}); }}) {
      const ForwardBackward flops = flops_of_graph(product);
      EXPECT_EQ(flops.forward, 2 * 3 * 4 * 5 * 7);
      EXPECT_EQ(flops.backward, times * flops.forward);
    }
  }
}

TEST(Flops, OfAttentionAreThoseOfPairsThatSeeEachOther) {
  const Context context = testing::context();
  const auto count = [&](std::int64_t queries, std::int64_t keys, bool causal, std::int64_t offset) {
    const Variable q = leaf(context, {2, 4, queries, 8}), k = leaf(context, {2, 2, keys, 8}),
                   v = leaf(context, {2, 2, keys, 8});
    return flops_of_graph([&] { return attention(q, k, v, {.causal = causal, .q_offset = offset}); });
  };
  const auto of_pairs = [](double pairs) { return pairs * 2 * 4 * (2 * 8 + 2 * 8); };
  EXPECT_EQ(count(6, 6, false, 0).forward, of_pairs(36));
  EXPECT_EQ(count(6, 6, true, 0).forward, of_pairs(1 + 2 + 3 + 4 + 5 + 6)) << "half of the pairs, and the diagonal";
  EXPECT_EQ(count(2, 6, true, 4).forward, of_pairs(5 + 6));
  EXPECT_EQ(count(6, 6, true, 0).backward, 2 * of_pairs(21)) << "scores are not computed again by the model";
  const Variable qkv = leaf(context, {2, 6, 8 * 8});
  EXPECT_EQ(flops_of_graph([&] { return attention_packed(qkv, 4, 2, {.causal = true}); }).forward, of_pairs(21));
  const auto in_window = [&](std::int64_t window, bool causal, std::int64_t offset) {
    const Variable q = leaf(context, {2, 4, 6, 8}), k = leaf(context, {2, 2, 6, 8}), v = leaf(context, {2, 2, 6, 8});
    const AttentionOptions options = {.causal = causal, .q_offset = offset, .window = window};
    return flops_of_graph([&] { return attention(q, k, v, options); }).forward;
  };
  EXPECT_EQ(in_window(2, true, 0), of_pairs(1 + 2 + 2 + 2 + 2 + 2));
  EXPECT_EQ(in_window(2, false, 0), of_pairs(2 + 3 + 3 + 3 + 3 + 2));
  EXPECT_EQ(in_window(3, true, 4), of_pairs(3 + 3 + 2 + 1)) << "two queries are past all keys";
  EXPECT_EQ(in_window(std::numeric_limits<std::int64_t>::max(), false, 0), of_pairs(36));
  const auto spans =
      std::make_shared<const std::vector<AttentionSpan>>(std::vector<AttentionSpan>{{0, 0, 2}, {0, 2, 5}, {1, 1, 6}});
  const ForwardBackward in_spans = flops_of_graph([&] { return attention_packed(qkv, 4, 2, spans, {.causal = true}); });
  EXPECT_EQ(2 * in_spans.forward, of_pairs(3 + 6 + 15)) << "spans are of one row of two";
  EXPECT_EQ(in_spans.backward, 2 * in_spans.forward);
}

TEST(Flops, AreNotThoseOfTablesNormsAndWhatIsComputedAgain) {
  const Context context = testing::context();
  const Variable table = leaf(context, {50, 8}), gain = leaf(context, {8}), weight = leaf(context, {8, 8}),
                 x = leaf(context, {3, 8});
  const Tensor ids = from_values(context, std::vector<std::int32_t>{4, 1, 4}, {3});
  EXPECT_EQ(flops_of_graph([&] { return embedding(table, ids); }).forward, 0);
  EXPECT_EQ(flops_of_graph([&] { return gelu(rms_norm(x, gain)); }).backward, 0);
  const auto twice = [&](const Variable& in) { return linear(tanh(linear(in, weight, {})), weight, {}); };
  const ForwardBackward plain = flops_of_graph([&] { return twice(x); });
  const ForwardBackward again = flops_of_graph([&] { return checkpoint(twice, x); });
  const ForwardBackward nested =
      flops_of_graph([&] { return checkpoint([&](const Variable& in) { return checkpoint(twice, in); }, x); });
  for (const ForwardBackward& each : {again, nested}) {
    EXPECT_EQ(each.forward, plain.forward);
    EXPECT_EQ(each.backward, plain.backward);
  }
  EXPECT_EQ(plain.backward, 2 * plain.forward);
}

TEST(Flops, AreCountedByTheInnermostScopeOfAThread) {
  const FlopCount outer;
  count_flops(1);
  {
    const FlopCount inner;
    count_flops(2);
    EXPECT_EQ(inner.flops(), 2);
  }
  count_flops(4);
  EXPECT_EQ(outer.flops(), 5);
}

}  // namespace
}  // namespace keel
