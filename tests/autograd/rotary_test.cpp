// Attention of rotated queries and keys from a packed projection: what its parts give one after the other.

#include "keel/autograd/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/autograd/backward.h"
#include "keel/autograd/flops.h"
#include "keel/autograd/norm.h"
#include "keel/autograd/reduce.h"
#include "keel/autograd/shape.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::uniform_tensor;

constexpr int kHeads = 4, kKvHeads = 2;
constexpr std::int64_t kSize = 8;

Rotary turns_of(const Context& context) {
  std::vector<double> cosines, sines;
  for (int m = 0; m < 32; ++m)
    for (int p = 0; p < 3; ++p) {
      cosines.push_back(std::cos(m * std::pow(0.3, p)));
      sines.push_back(std::sin(m * std::pow(0.3, p)));
    }
  return {.table = {testing::tensor_of(context, cosines, {32, 3}), testing::tensor_of(context, sines, {32, 3})}};
}

Variable leaf_of(const Context& context, const Dims& shape, std::uint64_t seed, DType dtype) {
  return Variable(uniform_tensor(context, shape, seed, dtype), true);
}

std::vector<std::vector<double>> with_gradients(const Variable& out, const std::vector<Variable>& leaves) {
  const Variable outputs[] = {out};
  const Tensor grads[] = {uniform_tensor(out.context(), out.shape(), 9, out.dtype())};
  backward(outputs, grads);
  std::vector<std::vector<double>> found = {doubles(out.value())};
  for (const Variable& leaf : leaves) found.push_back(doubles(leaf.grad()));
  return found;
}

TEST(AttentionRotary, EqualsNormsRotationsAndAttentionOneByOne) {
  const Context context = testing::context();
  const Rotary turns = turns_of(context);
  for (const bool has_norms : {false, true}) {
    std::vector<std::vector<double>> found[2];
    for (const bool packed : {false, true}) {
      const Variable qkv = leaf_of(context, {2, 6, (kHeads + 2 * kKvHeads) * kSize}, 1, DType::f64);
      const Variable q_weight = leaf_of(context, {kSize}, 2, DType::f64),
                     k_weight = leaf_of(context, {kSize}, 3, DType::f64);
      std::vector<Variable> leaves = {qkv};
      if (has_norms) leaves.insert(leaves.end(), {q_weight, k_weight});
      Variable out;
      if (packed) {
        const HeadNorms norms = has_norms ? HeadNorms{q_weight, k_weight, 1e-3} : HeadNorms{};
        out = attention_rotary(qkv, kHeads, kKvHeads, turns, {}, {.causal = true, .window = 3}, norms);
      } else {
        const Variable heads = transpose(view(qkv, {2, 6, kHeads + 2 * kKvHeads, kSize}), 1, 2);
        Variable q = slice(heads, 1, 0, kHeads), k = slice(heads, 1, kHeads, kHeads + kKvHeads);
        const Variable v = slice(heads, 1, kHeads + kKvHeads, kHeads + 2 * kKvHeads);
        if (has_norms) {
          q = rms_norm(q, q_weight, 1e-3);
          k = rms_norm(k, k_weight, 1e-3);
        }
        const Variable each = attention(rotary(q, turns), rotary(k, turns), v, {.causal = true, .window = 3});
        out = view(transpose(each, 1, 2), {2, 6, kHeads * kSize});
      }
      found[packed] = with_gradients(out, leaves);
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (std::size_t i = 0; i < found[0].size(); ++i) EXPECT_LT(relative_error(found[1][i], found[0][i]), 1e-13) << i;
  }
}

TEST(AttentionRotary, ASpanHasTheBitsOfABatchOfItAlone) {
  const Context context = testing::context();
  const Rotary turns = turns_of(context);
  const Dims shape = {2, 10, (kHeads + 2 * kKvHeads) * kSize};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor numbers = uniform_tensor(context, shape, 1, dtype),
                 weight = uniform_tensor(context, {kSize}, 2, dtype);
    const HeadNorms norms{Variable(weight), Variable(weight)};
    const Variable qkv(numbers, true);
    const auto spans = std::make_shared<const std::vector<AttentionSpan>>(
        std::vector<AttentionSpan>{{0, 0, 4}, {0, 4, 9}, {1, 2, 10}});
    const Variable out = attention_rotary(qkv, kHeads, kKvHeads, turns, spans, {.causal = true}, norms);
    backward(sum(out));
    for (const AttentionSpan& span : *spans) {
      const auto part = [&](const Tensor& x) {
        return kernels::clone(x.slice(0, span.row, span.row + 1).slice(1, span.begin, span.end));
      };
      const Variable alone(part(numbers), true);
      const Variable result = attention_rotary(alone, kHeads, kKvHeads, turns, {}, {.causal = true}, norms);
      backward(sum(result));
      EXPECT_EQ(doubles(part(out.value())), doubles(result.value()));
      EXPECT_EQ(doubles(part(qkv.grad())), doubles(alone.grad()));
    }
    for (const Tensor& outside : {out.value().select(0, 0).select(0, 9), qkv.grad().select(0, 1).select(0, 1)})
      for (const double value : doubles(outside)) EXPECT_EQ(value, 0);
  }
}

TEST(AttentionRotary, KeysOfNewPositionsInACacheAreThoseOfOneText) {
  const Context context = testing::context();
  const Rotary turns = turns_of(context);
  const Variable keys(uniform_tensor(context, {1, 2, 7, kSize}, 1));
  const std::vector<double> all = doubles(rotary(keys, turns).value().slice(2, 4, 7));
  Rotary later = turns;
  later.first = 4;
  EXPECT_EQ(doubles(rotary(slice(keys, 2, 4, 7), later).value()), all);
  later.first = 0;
  later.positions = testing::tensor_of(context, {4, 5, 6}, {1, 3}, DType::i64);
  EXPECT_EQ(doubles(rotary(slice(keys, 2, 4, 7), later).value()), all);
}

TEST(AttentionRotary, TakesPositionsOfAllRowsAtOnceAndOfEachRow) {
  const Context context = testing::context();
  Rotary turns = turns_of(context);
  turns.first = 3;
  const Variable qkv(uniform_tensor(context, {2, 4, (kHeads + 2 * kKvHeads) * kSize}, 1));
  const auto result = [&] { return doubles(attention_rotary(qkv, kHeads, kKvHeads, turns).value()); };
  const std::vector<double> expected = result();
  for (const Dims& shape : {Dims{4}, Dims{1, 4}, Dims{2, 4}}) {
    turns.positions = testing::tensor_of(context, {3, 4, 5, 6}, {4}, DType::i32).expand({2, 4});
    turns.positions = shape == Dims{2, 4} ? turns.positions : turns.positions.slice(0, 0, 1).view(shape);
    EXPECT_EQ(result(), expected) << shape;
  }
  turns.positions = zeros(context, {3}, DType::i32);
  EXPECT_NE(error_of(result).find("rotary: positions must be [4] or (2, 4)"), std::string::npos) << error_of(result);
}

TEST(AttentionRotary, CountsTheOperationsOfTheAttentionAndRefusesHalfANorm) {
  const Context context = testing::context();
  const Rotary turns = turns_of(context);
  const Variable qkv = leaf_of(context, {1, 4, (kHeads + 2 * kKvHeads) * kSize}, 1, DType::f32);
  const auto flops = [](const auto& f) {
    const FlopCount count;
    backward(sum(f()));
    return count.flops();
  };
  const double plain = flops([&] { return attention_packed(qkv, kHeads, kKvHeads, {.causal = true}); });
  EXPECT_GT(plain, 0);
  EXPECT_EQ(flops([&] { return attention_rotary(qkv, kHeads, kKvHeads, turns, {}, {.causal = true}); }), plain);
  EXPECT_NE(error_of([&] {
              attention_rotary(qkv, kHeads, kKvHeads, turns, {}, {},
                               {.query = Variable(uniform_tensor(context, {kSize}, 1))});
            }).find("both or neither"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
