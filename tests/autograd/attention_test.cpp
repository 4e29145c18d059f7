#include "keel/autograd/attention.h"

#include <gtest/gtest.h>

#include "keel/autograd/attention_spans.h"
#include "keel/autograd/backward.h"
#include "keel/autograd/reduce.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::uniform_tensor;

AttentionSpans one_span(const AttentionSpan& span) {
  return std::make_shared<const std::vector<AttentionSpan>>(std::vector<AttentionSpan>{span});
}

// A span's masks are those of its places in the row, whatever else the row holds.
TEST(AttentionWithinSpans, DropsAsTheWholeRowDoes) {
  const Context context = testing::context();
  AttentionOptions options = {.causal = true, .window = 9};
  options.dropout = {.probability = 0.4,
                     .key = {.seed = 2, .step = 9, .call = 1},
                     .sample_ids = from_values(context, std::vector<std::int64_t>{70, 4}, {2})};
  const auto gradient_and_out = [&](const auto& attend) {
    const Variable qkv(uniform_tensor(context, {2, 30, 4 * 8}, 1, DType::f64, -2, 2), true);
    const Tensor out = kernels::clone(attend(qkv).value().slice(0, 1, 2).slice(1, 5, 27));
    const Tensor grad = zeros(context, {2, 30, 2 * 8}, DType::f64);
    kernels::copy_into(grad.slice(0, 1, 2).slice(1, 5, 27), uniform_tensor(context, out.shape(), 2, DType::f64));
    const Variable outputs[] = {attend(qkv)};
    const Tensor gradients[] = {grad};
    backward(outputs, gradients);
    return std::pair(doubles(out), doubles(qkv.grad().slice(0, 1, 2).slice(1, 5, 27)));
  };
  const auto spans = one_span({1, 5, 27});
  const auto [out, grad] =
      gradient_and_out([&](const Variable& qkv) { return attention_packed(qkv, 2, 1, spans, options); });
  AttentionOptions whole = options;
  whole.starts = from_values(context, std::vector<std::int64_t>{0, 5}, {2});
  const auto [expected_out, expected_grad] =
      gradient_and_out([&](const Variable& qkv) { return attention_packed(qkv, 2, 1, whole); });
  EXPECT_LT(relative_error(out, expected_out), 1e-13);
  EXPECT_LT(relative_error(grad, expected_grad), 1e-13);
}

TEST(AttentionWithinSpans, OfDocumentsAreNeighboursOfOneNumberThatIsNotBelowZero) {
  const Context context = testing::context();
  const std::vector<std::int32_t> documents = {0, 0, 1, 1, 1, -1, /**/ -1, 5, 0, 0, -2, 7, /**/ 3, 3, 3, 3, 3, 3};
  EXPECT_EQ(*spans_of(from_values(context, documents, {3, 6})),
            (std::vector<AttentionSpan>{{0, 0, 2}, {0, 2, 5}, {1, 1, 2}, {1, 2, 4}, {1, 5, 6}, {2, 0, 6}}));
  EXPECT_NE(error_of([&] {
              spans_of(zeros(context, {3, 6}, DType::i64));
            }).find("i32 (batch, time)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { spans_of(zeros(context, {6}, DType::i32)); }).find("i32 (batch, time)"), std::string::npos);
}

TEST(AttentionWithinSpans, AnswersWithZeroAtEveryPositionOutside) {
  const Context context = testing::context();
  for (const AttentionSpan& span : {AttentionSpan{0, 0, 5}, AttentionSpan{0, 1, 6}, AttentionSpan{0, 2, 4}}) {
    const Variable qkv(uniform_tensor(context, {1, 6, 24}, 1), true);
    for (int i = 0; i < 4; ++i) kernels::fill(empty(context, {1, 6, 8}), 1e30);  // what memory is taken from
    const Variable out = attention_packed(qkv, 1, 1, one_span(span), {});
    backward(sum(out));
    for (std::int64_t at = 0; at < 6; ++at)
      for (const double each : doubles(out.value().select(1, at)))
        EXPECT_EQ(each != 0, at >= span.begin && at < span.end) << at;
  }
}

TEST(AttentionWithinSpans, RefusesPlacesThatAreNotInTheRows) {
  const Context context = testing::context();
  const Tensor qkv = zeros(context, {2, 6, 24});
  const auto refusal = [&](const AttentionSpan& span) {
    return error_of([&] { check_spans({{0, 0, 1}, span}, qkv, {}); });
  };
  for (const AttentionSpan& good : {AttentionSpan{0, 0, 6}, {1, 0, 1}, {1, 5, 6}, {0, 2, 3}}) {
    EXPECT_EQ(refusal(good), "");
    EXPECT_EQ(check_spans({{0, 0, 1}, good}, qkv, {}), 1 + good.end - good.begin);
  }
  for (const AttentionSpan& bad : {AttentionSpan{-1, 0, 6}, {2, 0, 6}, {0, -1, 3}, {0, 3, 3}, {0, 4, 3}, {1, 2, 7}})
    EXPECT_EQ(refusal(bad),
              concat("attention: positions [", bad.begin, ", ", bad.end, ") of row ", bad.row, " are not in ", qkv));
}

TEST(AttentionWithinSpans, RefusesWhatSpansSayThemselves) {
  const Context context = testing::context();
  const Variable qkv(uniform_tensor(context, {2, 6, 24}, 1));
  const auto refusal = [&](const AttentionOptions& options) {
    return error_of([&] { attention_packed(qkv, 1, 1, one_span({1, 2, 5}), options); });
  };
  const Tensor two = zeros(context, {2}, DType::i64);
  EXPECT_EQ(refusal({.causal = true, .window = 2, .dropout = {.probability = 0.5, .sample_ids = two}}), "");
  for (const AttentionOptions& options :
       {AttentionOptions{.q_offset = 1}, AttentionOptions{.lengths = two}, AttentionOptions{.starts = two}})
    EXPECT_NE(refusal(options).find("neither an offset nor starts and lengths"), std::string::npos) << refusal(options);
  for (const Tensor& ids : {Tensor(), zeros(context, {3}, DType::i64), zeros(context, {1}, DType::i64)})
    EXPECT_NE(
        refusal({.dropout = {.probability = 0.5, .sample_ids = ids}}).find("sample_ids`, i64 (2), one for each row"),
        std::string::npos);
}

TEST(AttentionWithBias, IsAttentionWhereThereIsNone) {
  const Context context = testing::context();
  const Variable q(uniform_tensor(context, {2, 2, 7, 8}, 1)), k(uniform_tensor(context, {2, 2, 9, 8}, 2));
  EXPECT_EQ(doubles(attention_with_bias(q, k, k, {}).value()), doubles(attention(q, k, k).value()));
}

// The sum over what shares a bias is kept in fp32, and rounded to the bias's dtype at the end.
TEST(AttentionWithBias, GivesABiasOfEitherDtypeItsGradient) {
  const Context context = testing::context();
  const auto grad_of = [&](DType dtype, DType bias_dtype) {
    const auto rounded = [&](const Dims& shape, std::uint64_t seed) {
      return Variable(kernels::cast(uniform_tensor(context, shape, seed, DType::bf16), dtype));
    };
    const Variable bias(kernels::cast(uniform_tensor(context, {1, 2, 7, 9}, 4, DType::bf16), bias_dtype), true);
    const Variable outputs[] = {
        attention_with_bias(rounded({3, 2, 7, 8}, 1), rounded({3, 2, 9, 8}, 2), rounded({3, 2, 9, 8}, 3), bias)};
    const Tensor gradients[] = {kernels::cast(uniform_tensor(context, {3, 2, 7, 8}, 5, DType::bf16), dtype)};
    backward(outputs, gradients);
    EXPECT_EQ(bias.grad().dtype(), bias_dtype);
    return doubles(bias.grad());
  };
  const std::vector<double> exact = grad_of(DType::f64, DType::f64);
  EXPECT_LT(relative_error(grad_of(DType::f32, DType::f32), exact), 1e-5);
  EXPECT_LT(relative_error(grad_of(DType::bf16, DType::f32), exact), 2e-2);
  EXPECT_LT(relative_error(grad_of(DType::bf16, DType::bf16), exact), 2e-2);
}

}  // namespace
}  // namespace keel
