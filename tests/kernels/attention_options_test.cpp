// Windows, starts, a bias with its gradient and dropout of attention, each alone and together.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/error_of.h"
#include "tests/kernels/attention_options.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::kFloats;
using testing::kOptionCases;
using testing::OptionCase;
using testing::OptionInputs;
using testing::OptionResults;
using testing::relative_error;
using testing::tensor_of;
using testing::uniform_tensor;

double options_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-11;
    case DType::f32: return 1e-5;
    case DType::f16: return 4e-3;
    default: return 2.5e-2;
  }
}

// Where the exact numbers are zero (a softmax of one weight), so are those that are allowed.
void expect_close(const Tensor& got, const std::vector<double>& expected, DType dtype, const std::string& what) {
  const std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double error =
      largest < 1e-9 ? relative_error(values, std::vector<double>(values.size(), 0)) : relative_error(values, expected);
  EXPECT_LT(error, options_tolerance(dtype)) << what << ' ' << dtype;
}

void expect_reference(const Context& context, const OptionCase& c, DType dtype, DType bias_dtype) {
  const OptionInputs in = testing::option_inputs(context, c, dtype, bias_dtype);
  const AttentionBackwardArgs got = testing::run_options(c, in);
  const OptionResults expected = testing::options_reference(c, in);
  const std::string name = testing::name_of(c);
  expect_close(got.forward.out, expected.out, dtype, name + " out");
  expect_close(got.grad_q, expected.grad_q, dtype, name + " q");
  expect_close(got.grad_k, expected.grad_k, dtype, name + " k");
  expect_close(got.grad_v, expected.grad_v, dtype, name + " v");
  if (!c.bias.empty()) expect_close(got.grad_bias, expected.grad_bias, dtype, name + " bias");
  const std::vector<double> lse = doubles(got.forward.lse);
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) EXPECT_EQ(lse[i], expected.lse[i]) << name;
    else EXPECT_NEAR(lse[i], expected.lse[i], options_tolerance(dtype) * 10) << name << ' ' << dtype;
  }
}

TEST(AttentionOptions, EqualADoubleReferenceAloneAndTogether) {
  const Context context = testing::context();
  for (const OptionCase& c : kOptionCases)
    for (const DType dtype : kFloats) expect_reference(context, c, dtype, dtype);
}

TEST(AttentionOptions, TakeEveryHeadSize) {
  const Context context = testing::context();
  OptionCase c = {.batch = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .queries = 70,
                  .keys = 70,
                  .causal = true,
                  .window = 25,
                  .starts = {2},
                  .bias = "hq",
                  .dropout = 0.1};
  for (const std::int64_t size : {1, 2, 3, 8, 15, 31, 32, 64, 80, 96, 127, 128, 160, 192, 200, 255, 256})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      c.size = size;
      c.queries = 70;
      expect_reference(context, c, dtype, DType::f32);
      c.queries = 1;
      expect_reference(context, c, dtype, dtype);
    }
}

std::vector<double> all_of(const AttentionBackwardArgs& results) {
  std::vector<double> all;
  for (const Tensor& x :
       {results.forward.out, results.forward.lse, results.grad_q, results.grad_k, results.grad_v, results.grad_bias})
    if (x.defined())
      for (const double value : doubles(x)) all.push_back(value);
  return all;
}

TEST(AttentionOptions, GiveTheSameBitsAtOneAndTwoThreads) {
  std::vector<OptionCase> cases(std::begin(kOptionCases), std::end(kOptionCases));
  // Enough work that each task is worth a thread.
  for (const char* bias : {"hq", "bq", "q", "h", "1"})
    cases.push_back({.batch = 2,
                     .heads = 8,
                     .kv_heads = 2,
                     .queries = 400,
                     .keys = 400,
                     .size = 8,
                     .causal = true,
                     .window = 390,
                     .bias = bias,
                     .dropout = 0.1});
  for (const OptionCase& c : cases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto run = [&, dtype](int threads) {
        const Context context = testing::context(threads);
        return all_of(testing::run_options(c, testing::option_inputs(context, c, dtype, dtype)));
      };
      EXPECT_EQ(run(1), run(2)) << testing::name_of(c) << ' ' << dtype;
    }
}

TEST(AttentionOptions, GiveASampleTheBitsThatItHasAlone) {
  const Context context = testing::context();
  const OptionCase c = {.batch = 3,
                        .heads = 2,
                        .kv_heads = 2,
                        .queries = 40,
                        .keys = 60,
                        .size = 16,
                        .causal = true,
                        .q_offset = 20,
                        .window = 30,
                        .starts = {0, 5, 21},
                        .lengths = {60, 50, 60},
                        .bias = "bhq",
                        .dropout = 0.25};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OptionInputs in = testing::option_inputs(context, c, dtype, dtype);
    const AttentionBackwardArgs together = testing::run_options(c, in);
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const auto of_sample = [&, b](const Tensor& x) { return x.slice(0, b, b + 1); };
      const OptionInputs alone = {of_sample(in.q),       of_sample(in.k),       of_sample(in.v),
                                  of_sample(in.bias),    of_sample(in.starts),  of_sample(in.lengths),
                                  of_sample(in.samples), of_sample(in.grad_out)};
      const AttentionBackwardArgs one = testing::run_options(c, alone);
      EXPECT_EQ(doubles(one.forward.out), doubles(of_sample(together.forward.out))) << b;
      EXPECT_EQ(doubles(one.grad_q), doubles(of_sample(together.grad_q))) << b;
      EXPECT_EQ(doubles(one.grad_k), doubles(of_sample(together.grad_k))) << b;
      EXPECT_EQ(doubles(one.grad_v), doubles(of_sample(together.grad_v))) << b;
      EXPECT_EQ(doubles(one.grad_bias), doubles(of_sample(together.grad_bias))) << b;
    }
  }
}

TEST(AttentionOptions, ThatHideAndAddNothingChangeNoBit) {
  const Context context = testing::context();
  const OptionCase plain = {
      .batch = 2, .heads = 4, .kv_heads = 2, .queries = 90, .keys = 110, .size = 16, .causal = true};
  for (const DType dtype : kFloats) {
    const OptionInputs in = testing::option_inputs(context, plain, dtype, dtype);
    OptionInputs more = in;
    more.starts = from_values(context, std::vector<std::int64_t>{-3, 0}, {2});
    more.bias = zeros(context, {1, 1, 1, 110}, dtype);
    OptionCase neutral = plain;
    neutral.window = std::numeric_limits<std::int64_t>::max();
    const AttentionBackwardArgs expected = testing::run_options(plain, in);
    AttentionBackwardArgs got = testing::run_options(neutral, more, false);
    EXPECT_EQ(all_of(got), all_of(expected)) << dtype;
  }
}

// Weights are equal and values one-hot, so that the output is the mask.
TEST(AttentionOptions, DropWhatAttentionKeepsSays) {
  const Context context = testing::context();
  for (const std::int64_t queries : {2, 200}) {
    const OptionCase c = {.batch = 2,
                          .heads = 4,
                          .kv_heads = 4,
                          .queries = queries,
                          .keys = 200,
                          .size = 200,
                          .q_offset = 7,
                          .dropout = 0.3,
                          .position = 13};
    OptionInputs in = testing::option_inputs(context, c, DType::f32, DType::f32);
    in.q = zeros(context, in.q.shape());
    std::vector<double> unit(200 * 200, 0);
    for (std::size_t i = 0; i < 200; ++i) unit[i * 201] = 1;
    in.v = tensor_of(context, unit, {1, 1, 200, 200}).expand({2, 4, 200, 200});
    const Tensor out = testing::run_options(c, in).forward.out;
    const std::vector<double> values = doubles(out);
    const PhiloxKey key = key_of(testing::kOptionKey);
    const double kept = 1 - std::floor(0.3 * 65536) / 65536;
    std::size_t at = 0, wrong = 0, count = 0;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::uint32_t h = 0; h < 4; ++h)
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t j = 0; j < 200; ++j, ++at) {
            const bool keeps =
                attention_keeps(attention_dropout_key(key, h), static_cast<std::uint64_t>(testing::sample_of(b)),
                                static_cast<std::uint32_t>(13 + 7 + i), static_cast<std::uint32_t>(13 + j),
                                attention_dropout_threshold(0.3));
            count += keeps;
            const double expected = keeps ? 1 / (200 * kept) : 0;
            wrong += std::abs(values[at] - expected) > 1e-8 ? 1 : 0;
          }
    EXPECT_EQ(wrong, 0u);
    // Shares of independent draws: five standard deviations.
    const auto total = static_cast<double>(at);
    EXPECT_NEAR(static_cast<double>(count) / total, kept, 5 * std::sqrt(kept * (1 - kept) / total));
    double mass = 0;
    for (const double value : values) mass += value;
    EXPECT_NEAR(mass / (total / 200), 1, 5 * std::sqrt((1 - kept) / kept / total)) << "weights sum to 1 in the mean";
  }
}

// Queries that begin later and keys that begin later are the same places in the row.
TEST(AttentionOptions, DropByPlacesInTheRow) {
  const Context context = testing::context();
  const OptionCase whole = {.batch = 2,
                            .heads = 2,
                            .kv_heads = 1,
                            .queries = 100,
                            .keys = 100,
                            .size = 16,
                            .causal = true,
                            .starts = {20, 20},
                            .dropout = 0.5};
  const OptionInputs in = testing::option_inputs(context, whole, DType::f64, DType::f64);
  const Tensor expected = testing::run_options(whole, in).forward.out;
  for (const std::int64_t first : {50, 98}) {
    OptionCase part = whole;
    part.queries = 100 - first;
    part.keys = 80;
    part.q_offset = first - 20;
    part.position = 20;
    part.starts = {};
    const OptionInputs of_part = {
        in.q.slice(2, first, 100),       in.k.slice(2, 20, 100), in.v.slice(2, 20, 100), {}, {}, {}, in.samples,
        in.grad_out.slice(2, first, 100)};
    const Tensor got = testing::run_options(part, of_part).forward.out;
    EXPECT_LT(relative_error(doubles(got), doubles(expected.slice(2, first, 100))), 1e-13) << first;
  }
}

TEST(AttentionOptions, ReadNothingBeforeWhatIsSeen) {
  const Context context = testing::context();
  for (const std::int64_t queries : {2, 60})
    for (const bool by_window : {false, true})
      for (const DType dtype : kFloats) {
        OptionCase c = {.batch = 1,
                        .heads = 2,
                        .kv_heads = 1,
                        .queries = queries,
                        .keys = 300,
                        .size = 8,
                        .causal = true,
                        .q_offset = 300 - queries};
        if (by_window) c.window = 300 - queries - 101 + 1;  // the first query sees keys from 101 on
        else c.starts = {101};
        const OptionInputs clean = testing::option_inputs(context, c, dtype, dtype);
        OptionInputs dirty = clean;
        const auto spoilt = [&](const Tensor& x) {
          std::vector<double> values = doubles(x);
          std::fill(values.begin(), values.begin() + 101 * 8, NAN);
          return tensor_of(context, values, x.shape(), dtype);
        };
        dirty.k = spoilt(clean.k);
        dirty.v = spoilt(clean.v);
        EXPECT_EQ(all_of(testing::run_options(c, dirty)), all_of(testing::run_options(c, clean)))
            << queries << by_window << dtype;
      }
}

TEST(AttentionOptions, GiveZerosWhereAQuerySeesNoKey) {
  const Context context = testing::context();
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t queries : {3, 60})
    for (const DType dtype : kFloats) {
      OptionCase far = {
          .batch = 1, .heads = 1, .queries = queries, .keys = 20, .size = 8, .q_offset = 30, .window = 5, .bias = "hq"};
      OptionCase hidden = far;
      hidden.window = 0;
      for (const OptionCase& c : {far, hidden}) {
        OptionInputs in = testing::option_inputs(context, c, dtype, dtype);
        if (c.window == 0)
          in.bias = tensor_of(context, std::vector<double>(static_cast<std::size_t>(queries * 20), -inf),
                              in.bias.shape(), dtype);
        const AttentionBackwardArgs got = testing::run_options(c, in);
        for (const Tensor& x : {got.forward.out, got.grad_q, got.grad_k, got.grad_v, got.grad_bias})
          for (const double value : doubles(x)) ASSERT_EQ(value, 0) << queries << dtype << c.window;
        for (const double value : doubles(got.forward.lse)) ASSERT_EQ(value, -inf);
      }
    }
}

TEST(AttentionOptions, OfAWindowNeedNoMemoryForTheOtherKeys) {
  const auto workspace = [](std::int64_t time) {
    const Context context = testing::context(1);
    const OptionCase c = {.batch = 1,
                          .heads = 1,
                          .queries = 40,
                          .keys = time,
                          .size = 8,
                          .causal = true,
                          .q_offset = time - 40,
                          .window = 64,
                          .dropout = 0.5};
    const OptionInputs in = testing::option_inputs(context, c, DType::f32, DType::f32);
    context.allocator().reset_peaks();
    testing::run_options(c, in, false, false);
    return context.memory()[Purpose::workspace].peak;
  };
  EXPECT_EQ(workspace(500), workspace(5000));
}

TEST(AttentionOptions, AreRefusedWhereTheyDoNotFit) {
  const Context context = testing::context();
  const OptionCase c = {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 3, .keys = 5, .size = 8, .dropout = 0.5};
  const OptionInputs in = testing::option_inputs(context, c, DType::bf16, DType::bf16);
  const auto refusal = [&](const std::function<void(AttentionArgs&)>& change) {
    return testing::error_of([&] {
      AttentionArgs args = testing::option_args(c, in);
      change(args);
      kernels::attention(args);
    });
  };
  const auto says = [&](const std::string& part, const std::function<void(AttentionArgs&)>& change) {
    EXPECT_NE(refusal(change).find(part), std::string::npos) << refusal(change) << "\nexpected: " << part;
  };
  EXPECT_EQ(refusal([](AttentionArgs&) {}), "");
  says("window must not be negative, got -1", [](AttentionArgs& args) { args.window = -1; });
  says("starts must be i64 (2), got", [&](AttentionArgs& args) { args.starts = zeros(context, {3}, DType::i64); });
  says("lengths must be i64 (2), got", [&](AttentionArgs& args) { args.lengths = zeros(context, {2}); });
  says("bias must be (1 or 2, 1 or 4, 1 or 3, 5)", [&](AttentionArgs& args) {
    args.bias = zeros(context, {1, 2, 3, 5}, DType::bf16);
  });
  says("bias must be (1 or 2", [&](AttentionArgs& args) { args.bias = zeros(context, {1, 1, 1, 1}, DType::bf16); });
  says("bias must be (1 or 2", [&](AttentionArgs& args) { args.bias = zeros(context, {3, 5}, DType::bf16); });
  says("bias must be bf16 or f32", [&](AttentionArgs& args) { args.bias = zeros(context, {1, 1, 1, 5}, DType::f16); });
  says("belong to different contexts", [&](AttentionArgs& args) {
    args.bias = zeros(testing::context(), {1, 1, 1, 5}, DType::bf16);
  });
  for (const double probability : {-0.1, 1.0, std::nan("")})
    says("probability lies in [0, 1)", [&](AttentionArgs& args) { args.dropout.probability = probability; });
  says("needs `sample_ids`, i64 (2)", [](AttentionArgs& args) { args.dropout.sample_ids = {}; });
  says("sample_ids must be i64 (2)",
       [&](AttentionArgs& args) { args.dropout.sample_ids = zeros(context, {2}, DType::i32); });
  says("positions in 31 bits", [](AttentionArgs& args) { args.dropout.position = INT32_MAX - 4; });
  says("positions in 31 bits", [](AttentionArgs& args) { args.dropout.position = -1; });

  AttentionBackwardArgs backward;
  backward.forward = kernels::attention(testing::option_args(c, in));
  backward.grad_out = in.grad_out;
  backward.needs_grad_bias = true;
  EXPECT_NE(testing::error_of([&] { kernels::attention_backward(backward); }).find("needs `bias`"), std::string::npos);
  backward.forward.bias = zeros(context, {1, 1, 1, 5}, DType::bf16);
  backward.grad_bias = zeros(context, {1, 1, 1, 5}, DType::bf16);
  EXPECT_NE(testing::error_of([&] { kernels::attention_backward(backward); }).find("grad_bias must be dense f32"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
