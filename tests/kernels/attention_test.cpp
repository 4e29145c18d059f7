#include "keel/kernels/attention.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::kFloats;
using testing::relative_error;
using testing::tensor_of;
using testing::uniform;
using testing::uniform_tensor;

struct Case {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1;
  bool causal = false;
  std::int64_t q_offset = 0;
  std::vector<std::int64_t> lengths = {};
  double scale = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "batch " << c.batch << " heads " << c.heads << '/' << c.kv_heads << " queries " << c.queries << " keys "
             << c.keys << " size " << c.size << (c.causal ? " causal" : "") << " offset " << c.q_offset
             << (c.lengths.empty() ? "" : " padded");
}

const Case kCases[] = {
    {.batch = 1, .heads = 1, .queries = 1, .keys = 1, .size = 1},
    {.batch = 2, .heads = 3, .kv_heads = 3, .queries = 7, .keys = 7, .size = 5, .causal = true},
    {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 65, .keys = 65, .size = 16, .causal = true},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 130, .keys = 130, .size = 33, .causal = true},
    {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 33, .keys = 71, .size = 24},
    {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 20, .keys = 60, .size = 8, .causal = true, .q_offset = 40},
    {.batch = 3,
     .heads = 2,
     .kv_heads = 2,
     .queries = 40,
     .keys = 40,
     .size = 12,
     .causal = true,
     .lengths = {40, 17, 0}},
    {.batch = 2, .heads = 6, .kv_heads = 1, .queries = 9, .keys = 50, .size = 10, .lengths = {50, 3}, .scale = 0.7},
    {.batch = 2, .heads = 2, .kv_heads = 2, .queries = 1, .keys = 90, .size = 32, .causal = true, .q_offset = 60},
    {.batch = 1, .heads = 1, .kv_heads = 1, .queries = 70, .keys = 900, .size = 16},
};

struct AttentionInputs {
  Tensor q, k, v, lengths;
};

AttentionInputs inputs_of(const Context& context, const Case& c, DType dtype, double size = 1) {
  AttentionInputs in;
  in.q = uniform_tensor(context, {c.batch, c.heads, c.queries, c.size}, 1, dtype, -2 * size, 2 * size);
  in.k = uniform_tensor(context, {c.batch, c.kv_heads, c.keys, c.size}, 2, dtype, -2 * size, 2 * size);
  in.v = uniform_tensor(context, {c.batch, c.kv_heads, c.keys, c.size}, 3, dtype);
  if (!c.lengths.empty()) in.lengths = from_values(context, c.lengths, {c.batch});
  return in;
}

AttentionArgs args_of(const Case& c, const AttentionInputs& in) {
  AttentionArgs args;
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  args.causal = c.causal;
  args.q_offset = c.q_offset;
  args.lengths = in.lengths;
  args.scale = c.scale;
  return args;
}

// The formula, one query at a time, in double precision.
std::vector<double> attention_reference(const Case& c, const std::vector<double>& q, const std::vector<double>& k,
                                        const std::vector<double>& v, std::vector<double>* lse = nullptr) {
  std::vector<double> out;
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.size));
  const auto at = [&](const std::vector<double>& x, std::int64_t row, std::int64_t d) {
    return x[static_cast<std::size_t>(row * c.size + d)];
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t keys_from = (b * c.kv_heads + h / (c.heads / c.kv_heads)) * c.keys;
      for (std::int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          if (c.causal && j > i + c.q_offset) break;
          if (!c.lengths.empty() && j >= c.lengths[static_cast<std::size_t>(b)]) break;
          double score = 0;
          for (std::int64_t d = 0; d < c.size; ++d)
            score += at(q, (b * c.heads + h) * c.queries + i, d) * at(k, keys_from + j, d);
          weights.push_back(std::exp(scale * score));
          sum += weights.back();
        }
        if (lse) lse->push_back(std::log(sum));
        for (std::int64_t d = 0; d < c.size; ++d) {
          double value = 0;
          for (std::size_t j = 0; j < weights.size(); ++j)
            value += weights[j] / sum * at(v, keys_from + static_cast<std::int64_t>(j), d);
          out.push_back(value);
        }
      }
    }
  }
  return out;
}

double attention_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f32: return 3e-6;
    case DType::f16: return 2e-3;
    default: return 1.2e-2;
  }
}

TEST(Attention, EqualsADoubleReferenceWithEveryMask) {
  const Context context = testing::context();
  for (const Case& c : kCases) {
    for (const DType dtype : kFloats) {
      const AttentionInputs in = inputs_of(context, c, dtype);
      const AttentionArgs result = kernels::attention(args_of(c, in));
      std::vector<double> lse;
      const std::vector<double> expected = attention_reference(c, doubles(in.q), doubles(in.k), doubles(in.v), &lse);
      EXPECT_LT(relative_error(doubles(result.out), expected), attention_tolerance(dtype)) << c << ' ' << dtype;
      const std::vector<double> got = doubles(result.lse);
      for (std::size_t i = 0; i < lse.size(); ++i) {
        if (std::isinf(lse[i])) EXPECT_EQ(got[i], lse[i]) << c;
        else EXPECT_NEAR(got[i], lse[i], attention_tolerance(dtype) * 10) << c << ' ' << dtype;
      }
    }
  }
}

TEST(Attention, ReadsAndWritesViewsOfPackedTensors) {
  const Context context = testing::context();
  const Case c = {.batch = 2, .heads = 3, .kv_heads = 3, .queries = 21, .keys = 21, .size = 16, .causal = true};
  for (const DType dtype : kFloats) {
    const Tensor packed = uniform_tensor(context, {2, 21, 3, 3, 16}, 4, dtype);
    const auto part = [](const Tensor& x, int which) { return x.select(2, which).transpose(1, 2); };
    AttentionArgs args = args_of(c, {part(packed, 0), part(packed, 1), part(packed, 2), {}});
    args.out = empty(context, {2, 21, 3, 16}, dtype).transpose(1, 2);
    args = kernels::attention(args);
    AttentionArgs dense = args_of(c, {tensor_of(context, doubles(args.q), {2, 3, 21, 16}, dtype),
                                      tensor_of(context, doubles(args.k), {2, 3, 21, 16}, dtype),
                                      tensor_of(context, doubles(args.v), {2, 3, 21, 16}, dtype),
                                      {}});
    dense = kernels::attention(dense);
    EXPECT_EQ(doubles(args.out), doubles(dense.out));

    const Tensor grad_packed = empty(context, {2, 21, 3, 3, 16}, dtype);
    const Tensor grad_out = uniform_tensor(context, {2, 21, 3, 16}, 5, dtype).transpose(1, 2);
    const AttentionBackwardArgs views = kernels::attention_backward({.forward = args,
                                                                     .grad_out = grad_out,
                                                                     .grad_q = part(grad_packed, 0),
                                                                     .grad_k = part(grad_packed, 1),
                                                                     .grad_v = part(grad_packed, 2)});
    const AttentionBackwardArgs plain =
        kernels::attention_backward({.forward = dense,
                                     .grad_out = tensor_of(context, doubles(grad_out), {2, 3, 21, 16}, dtype),
                                     .grad_q = {},
                                     .grad_k = {},
                                     .grad_v = {}});
    EXPECT_EQ(doubles(views.grad_q), doubles(plain.grad_q));
    EXPECT_EQ(doubles(views.grad_k), doubles(plain.grad_k));
    EXPECT_EQ(doubles(views.grad_v), doubles(plain.grad_v));
  }
}

TEST(Attention, GeneratesTheLastRowOfTheFullCall) {
  const Context context = testing::context();
  const Case full = {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 77, .keys = 77, .size = 32, .causal = true};
  for (const DType dtype : kFloats) {
    const AttentionInputs in = inputs_of(context, full, dtype);
    const Tensor all = kernels::attention(args_of(full, in)).out;
    for (const std::int64_t last : {1, 2, 9}) {
      Case step = full;
      step.queries = last;
      step.q_offset = 77 - last;
      const Tensor rows = kernels::attention(args_of(step, {in.q.slice(2, 77 - last, 77), in.k, in.v, {}})).out;
      EXPECT_LT(relative_error(doubles(rows), doubles(all.slice(2, 77 - last, 77))), attention_tolerance(dtype))
          << dtype << ' ' << last;
    }
  }
}

TEST(Attention, StaysFiniteForLargeScores) {
  const Context context = testing::context();
  const Case c = {.batch = 1, .heads = 1, .queries = 40, .keys = 40, .size = 8, .causal = true};
  for (const DType dtype : kFloats) {
    const AttentionInputs in = inputs_of(context, c, dtype, 40);
    for (const double value : doubles(kernels::attention(args_of(c, in)).out)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Attention, IgnoresWhatLiesInPaddedKeys) {
  const Context context = testing::context();
  const Case c = {.batch = 1, .heads = 1, .queries = 33, .keys = 50, .size = 8, .lengths = {17}};
  for (const DType dtype : kFloats) {
    const AttentionInputs in = inputs_of(context, c, dtype);
    const Tensor clean = kernels::attention(args_of(c, in)).out;
    std::vector<double> k = doubles(in.k), v = doubles(in.v);
    for (std::size_t i = 17 * 8; i < k.size(); ++i) k[i] = v[i] = NAN;
    const AttentionInputs dirty = {in.q, tensor_of(context, k, in.k.shape(), dtype),
                                   tensor_of(context, v, in.v.shape(), dtype), in.lengths};
    EXPECT_EQ(doubles(kernels::attention(args_of(c, dirty)).out), doubles(clean));
  }
}

TEST(Attention, GradientsEqualCentralDifferences) {
  const Context context = testing::context();
  for (const Case& c :
       {Case{.batch = 2, .heads = 2, .kv_heads = 1, .queries = 5, .keys = 5, .size = 3, .causal = true},
        Case{.batch = 2, .heads = 2, .kv_heads = 2, .queries = 3, .keys = 6, .size = 4, .causal = true, .q_offset = 2},
        Case{.batch = 2,
        .heads = 2,
        .kv_heads = 1,
        .queries = 4,
        .keys = 6,
        .size = 3,
        .lengths = {4, 0},
        .scale = 0.4}}) {
    const AttentionInputs in = inputs_of(context, c, DType::f64);
    AttentionBackwardArgs backward;
    backward.forward = kernels::attention(args_of(c, in));
    backward.grad_out = uniform_tensor(context, in.q.shape(), 6, DType::f64);
    backward = kernels::attention_backward(backward);
    const std::vector<double> weights = doubles(backward.grad_out);
    std::vector<double> values[] = {doubles(in.q), doubles(in.k), doubles(in.v)};
    const auto loss = [&] {
      double sum = 0;
      const std::vector<double> out = attention_reference(c, values[0], values[1], values[2]);
      for (std::size_t i = 0; i < out.size(); ++i) sum += std::isnan(out[i]) ? 0 : weights[i] * out[i];
      return sum;
    };
    const Tensor gradients[] = {backward.grad_q, backward.grad_k, backward.grad_v};
    for (int which = 0; which < 3; ++which) {
      std::vector<double> numeric;
      for (double& value : values[which]) {
        const double kept = value, step = 1e-5;
        value = kept + step;
        const double above = loss();
        value = kept - step;
        numeric.push_back((above - loss()) / (2 * step));
        value = kept;
      }
      EXPECT_LT(relative_error(doubles(gradients[which]), numeric), 1e-8) << c << " input " << which;
    }
  }
}

TEST(Attention, GradientsOfNarrowDtypesFollowThoseOfF64) {
  const Context context = testing::context();
  for (const Case& c : kCases) {
    const AttentionInputs narrow[] = {inputs_of(context, c, DType::bf16), inputs_of(context, c, DType::f16),
                                      inputs_of(context, c, DType::f32)};
    for (const AttentionInputs& in : narrow) {
      const DType dtype = in.q.dtype();
      const auto widened = [&](const Tensor& x) { return tensor_of(context, doubles(x), x.shape(), DType::f64); };
      const auto gradients = [&](const AttentionInputs& inputs, const Tensor& grad_out) {
        AttentionBackwardArgs backward;
        backward.forward = kernels::attention(args_of(c, inputs));
        backward.grad_out = grad_out;
        return kernels::attention_backward(backward);
      };
      const Tensor grad_out = uniform_tensor(context, in.q.shape(), 7, dtype);
      const AttentionBackwardArgs got = gradients(in, grad_out);
      const AttentionBackwardArgs exact =
          gradients({widened(in.q), widened(in.k), widened(in.v), in.lengths}, widened(grad_out));
      // A single key has the weight 1 whatever its score: the exact gradients of q and k are zero there.
      const double allowed = attention_tolerance(dtype) * 2;
      const auto close = [&](const Tensor& a, const Tensor& b) {
        const std::vector<double> x = doubles(a), y = doubles(b);
        return relative_error(x, y) < allowed || relative_error(x, std::vector<double>(x.size(), 0)) < allowed;
      };
      EXPECT_TRUE(close(got.grad_q, exact.grad_q))
          << c << ' ' << dtype << " q " << relative_error(doubles(got.grad_q), doubles(exact.grad_q));
      EXPECT_TRUE(close(got.grad_k, exact.grad_k))
          << c << ' ' << dtype << " k " << relative_error(doubles(got.grad_k), doubles(exact.grad_k));
      EXPECT_TRUE(close(got.grad_v, exact.grad_v))
          << c << ' ' << dtype << " v " << relative_error(doubles(got.grad_v), doubles(exact.grad_v));
    }
  }
}

TEST(Attention, GivesTheSameBitsAtOneAndTwoThreads) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto run = [&](int threads) {
        const Context context = testing::context(threads);
        const AttentionInputs in = inputs_of(context, c, dtype);
        AttentionBackwardArgs backward;
        backward.forward = kernels::attention(args_of(c, in));
        backward.grad_out = uniform_tensor(context, in.q.shape(), 8, dtype);
        backward = kernels::attention_backward(backward);
        std::vector<double> all = doubles(backward.forward.out);
        for (const Tensor& x : {backward.grad_q, backward.grad_k, backward.grad_v})
          for (const double value : doubles(x)) all.push_back(value);
        return all;
      };
      EXPECT_EQ(run(1), run(2)) << c << ' ' << dtype;
    }
  }
}

TEST(Attention, WorkspaceGrowsLinearlyWithTheLength) {
  const auto workspace = [](std::int64_t time, bool backward) {
    const Context context = testing::context(1);
    const Case c = {.batch = 1, .heads = 1, .queries = time, .keys = time, .size = 16, .causal = true};
    AttentionBackwardArgs args;
    args.forward = kernels::attention(args_of(c, inputs_of(context, c, DType::f32)));
    if (backward) {
      context.allocator().reset_peaks();
      args.grad_out = args.forward.q;
      kernels::attention_backward(args);
    }
    return static_cast<double>(context.memory()[Purpose::workspace].peak);
  };
  for (const bool backward : {false, true}) {
    const double half = workspace(1024, backward), whole = workspace(2048, backward);
    EXPECT_LT(whole, 2.1 * half);
    EXPECT_LT(whole, 2048 * 2048 * 4.0 / 2) << "half of a score matrix of 16 MiB";
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Context context = testing::context();
  const Case c = {.batch = 1, .heads = 4, .kv_heads = 2, .queries = 3, .keys = 3, .size = 8};
  const AttentionInputs in = inputs_of(context, c, DType::f32);
  const auto says = [&](const std::string& part, const std::function<void(AttentionArgs&)>& change) {
    AttentionArgs args = args_of(c, in);
    change(args);
    try {
      kernels::attention(args);
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const Error& error) { EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what(); }
  };
  says("cannot share 3 key/value heads", [&](AttentionArgs& args) {
    args.k = args.v = uniform_tensor(context, {1, 3, 3, 8}, 1);
  });
  says("head size", [&](AttentionArgs& args) { args.k = args.v = uniform_tensor(context, {1, 2, 3, 7}, 1); });
  says("last dimension of out", [&](AttentionArgs& args) {
    args.out = uniform_tensor(context, {1, 4, 8, 3}, 1).transpose(2, 3);
  });
  says("have no numbers", [&](AttentionArgs& args) {
    args.q = zeros(context, {1, 4, 3, 0});
    args.k = args.v = zeros(context, {1, 2, 3, 0});
  });
  says("floating dtype of q", [&](AttentionArgs& args) {
    args.v = uniform_tensor(context, {1, 2, 3, 8}, 1, DType::bf16);
  });
  says("lengths", [&](AttentionArgs& args) { args.lengths = uniform_tensor(context, {1}, 1); });
  says("q_offset", [](AttentionArgs& args) { args.q_offset = -1; });
}

}  // namespace
}  // namespace keel
