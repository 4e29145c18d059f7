#pragma once
// Calls of attention with options, and what they should compute: one query at a time, in double precision.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "keel/kernels/attention.h"
#include "tests/support.h"

namespace keel::testing {

struct OptionCase {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1;
  bool causal = false;
  std::int64_t q_offset = 0, window = 0;
  std::vector<std::int64_t> starts = {}, lengths = {};
  std::string bias = {};  // the dimensions that it has, of b, h and q; it always has the keys; empty: none
  double dropout = 0;
  std::int64_t position = 0;
};

// Each option alone and together.
inline const OptionCase kOptionCases[] = {
    {.batch = 1, .queries = 1, .keys = 1, .size = 1, .window = 1},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 150, .keys = 150, .size = 16, .causal = true, .window = 37},
    {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 131, .keys = 140, .size = 8, .window = 20},
    {.batch = 1, .heads = 1, .queries = 100, .keys = 200, .size = 9, .causal = true, .q_offset = 90, .window = 1},
    {.batch = 1, .heads = 2, .kv_heads = 1, .queries = 2, .keys = 90, .size = 32, .q_offset = 70, .window = 9},
    {.batch = 3,
     .heads = 2,
     .kv_heads = 2,
     .queries = 70,
     .keys = 70,
     .size = 12,
     .causal = true,
     .starts = {0, 33, 70}},
    {.batch = 2,
     .heads = 4,
     .kv_heads = 2,
     .queries = 60,
     .keys = 75,
     .size = 5,
     .starts = {3, 61},
     .lengths = {70, 64}},
    {.batch = 3, .heads = 2, .kv_heads = 2, .queries = 50, .keys = 33, .size = 8, .bias = "bhq"},
    {.batch = 3, .heads = 4, .kv_heads = 2, .queries = 101, .keys = 101, .size = 8, .causal = true, .bias = "hq"},
    {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 101, .keys = 40, .size = 8, .bias = "bq"},
    {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 101, .keys = 40, .size = 8, .bias = "q"},
    {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 101, .keys = 41, .size = 7, .bias = "bh"},
    {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 101, .keys = 40, .size = 8, .bias = "h"},
    {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 101, .keys = 40, .size = 8, .bias = "b"},
    {.batch = 2, .heads = 6, .kv_heads = 2, .queries = 101, .keys = 40, .size = 8, .bias = "1"},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 1, .keys = 40, .size = 8, .q_offset = 39, .bias = "hq"},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 90, .keys = 90, .size = 16, .causal = true, .dropout = 0.3},
    {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 2, .keys = 90, .size = 16, .dropout = 0.7, .position = 5},
    {.batch = 1, .heads = 1, .queries = 60, .keys = 300, .size = 16, .dropout = 0.5, .position = 1003},
    {.batch = 2,
     .heads = 4,
     .kv_heads = 2,
     .queries = 120,
     .keys = 133,
     .size = 33,
     .causal = true,
     .q_offset = 10,
     .window = 41,
     .starts = {4, 50},
     .lengths = {133, 100},
     .bias = "hq",
     .dropout = 0.2,
     .position = 3},
    {.batch = 2,
     .heads = 6,
     .kv_heads = 2,
     .queries = 119,
     .keys = 119,
     .size = 24,
     .window = 30,
     .starts = {1, 99},
     .bias = "q",
     .dropout = 0.4},
    {.batch = 3,
     .heads = 2,
     .kv_heads = 2,
     .queries = 2,
     .keys = 77,
     .size = 24,
     .causal = true,
     .q_offset = 60,
     .window = 30,
     .starts = {1, 40, 77},
     .bias = "b",
     .dropout = 0.4},
};

inline std::string name_of(const OptionCase& c) {
  return concat("batch ", c.batch, " heads ", c.heads, '/', c.kv_heads, " queries ", c.queries, " keys ", c.keys,
                " size ", c.size, c.causal ? " causal" : "", " offset ", c.q_offset, " window ", c.window,
                c.starts.empty() ? "" : " starts", c.lengths.empty() ? "" : " lengths", " bias ", c.bias, " dropout ",
                c.dropout);
}

inline constexpr DropoutKey kOptionKey = {.seed = 11, .step = 5, .call = 3};
// Global ids beyond 32 bits, not in order.
inline std::int64_t sample_of(std::int64_t b) { return (std::int64_t{1} << 33) + 17 * (5 - b); }

struct OptionInputs {
  Tensor q, k, v, bias, starts, lengths, samples, grad_out;
};

inline Dims bias_shape(const OptionCase& c) {
  const auto extent = [&](char dim, std::int64_t whole) { return c.bias.find(dim) == std::string::npos ? 1 : whole; };
  return {extent('b', c.batch), extent('h', c.heads), extent('q', c.queries), c.keys};
}

inline OptionInputs option_inputs(const Context& context, const OptionCase& c, DType dtype, DType bias_dtype) {
  OptionInputs in;
  in.q = uniform_tensor(context, {c.batch, c.heads, c.queries, c.size}, 1, dtype, -2, 2);
  in.k = uniform_tensor(context, {c.batch, c.kv_heads, c.keys, c.size}, 2, dtype, -2, 2);
  in.v = uniform_tensor(context, {c.batch, c.kv_heads, c.keys, c.size}, 3, dtype);
  in.grad_out = uniform_tensor(context, in.q.shape(), 4, dtype);
  const bool wide = dtype == DType::f64;
  if (!c.bias.empty()) in.bias = uniform_tensor(context, bias_shape(c), 5, wide ? dtype : bias_dtype, -1, 1);
  if (!c.starts.empty()) in.starts = from_values(context, c.starts, {c.batch});
  if (!c.lengths.empty()) in.lengths = from_values(context, c.lengths, {c.batch});
  std::vector<std::int64_t> samples;
  for (std::int64_t b = 0; b < c.batch; ++b) samples.push_back(sample_of(b));
  in.samples = from_values(context, samples, {c.batch});
  return in;
}

inline AttentionArgs option_args(const OptionCase& c, const OptionInputs& in) {
  AttentionArgs args;
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  args.causal = c.causal;
  args.q_offset = c.q_offset;
  args.window = c.window;
  args.starts = in.starts;
  args.lengths = in.lengths;
  args.bias = in.bias;
  if (c.dropout != 0)
    args.dropout = {.probability = c.dropout, .key = kOptionKey, .sample_ids = in.samples, .position = c.position};
  return args;
}

// Forward and backward, with the gradient of the bias where there is one and it is wanted.
inline AttentionBackwardArgs run_options(const OptionCase& c, const OptionInputs& in, bool grad_bias = true,
                                         bool backward = true) {
  AttentionBackwardArgs args;
  args.forward = kernels::attention(option_args(c, in));
  args.grad_out = in.grad_out;
  args.needs_grad_bias = grad_bias && in.bias.defined();
  return backward ? kernels::attention_backward(args) : args;
}

struct OptionResults {
  std::vector<double> out, lse, grad_q, grad_k, grad_v, grad_bias;
};

inline OptionResults options_reference(const OptionCase& c, const OptionInputs& in) {
  const std::vector<double> q = doubles(in.q), k = doubles(in.k), v = doubles(in.v), grad_out = doubles(in.grad_out);
  const std::vector<double> bias = in.bias.defined() ? doubles(in.bias) : std::vector<double>{};
  const std::vector<std::int64_t> samples = in.samples.to_vector<std::int64_t>();
  OptionResults results;
  results.out.assign(q.size(), 0);
  results.grad_q.assign(q.size(), 0);
  results.grad_k.assign(k.size(), 0);
  results.grad_v.assign(v.size(), 0);
  results.grad_bias.assign(bias.size(), 0);
  const double scale = 1 / std::sqrt(static_cast<double>(c.size));
  const double share = 1 - std::floor(c.dropout * 65536) / 65536;
  const auto number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const Dims shape = c.bias.empty() ? Dims{1, 1, 1, 1} : bias_shape(c);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i) {
        const std::int64_t row = ((b * c.heads + h) * c.queries + i) * c.size;
        const std::int64_t first = (b * c.kv_heads + h / (c.heads / c.kv_heads)) * c.keys;
        const std::int64_t bias_row = ((b % shape[0] * shape[1] + h % shape[1]) * shape[2] + i % shape[2]) * c.keys;
        const std::int64_t place = i + c.q_offset;
        std::vector<std::int64_t> seen;
        std::vector<double> weights, factors, gradients;  // factors: of dropout
        double sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          if (c.causal && j > place) continue;
          if (c.window != 0 && std::abs(place - j) >= c.window) continue;
          if (!c.starts.empty() && j < c.starts[number(b)]) continue;
          if (!c.lengths.empty() && j >= c.lengths[number(b)]) continue;
          double score = 0;
          for (std::int64_t d = 0; d < c.size; ++d) score += q[number(row + d)] * k[number((first + j) * c.size + d)];
          score *= scale;
          if (!bias.empty()) score += bias[number(bias_row + j)];
          seen.push_back(j);
          weights.push_back(std::exp(score));
          sum += weights.back();
          const bool keeps =
              c.dropout == 0 ||
              attention_keeps(attention_dropout_key(key_of(kOptionKey), static_cast<std::uint32_t>(h)),
                              static_cast<std::uint64_t>(samples[number(b)]),
                              static_cast<std::uint32_t>(c.position + place),
                              static_cast<std::uint32_t>(c.position + j), attention_dropout_threshold(c.dropout));
          factors.push_back(keeps ? 1 / share : 0);
        }
        results.lse.push_back(std::log(sum));
        double mean = 0;
        for (std::size_t n = 0; n < seen.size(); ++n) {
          weights[n] /= sum;
          double gradient = 0;
          for (std::int64_t d = 0; d < c.size; ++d) {
            const std::size_t at = number((first + seen[n]) * c.size + d), to = number(row + d);
            results.out[to] += weights[n] * factors[n] * v[at];
            results.grad_v[at] += weights[n] * factors[n] * grad_out[to];
            gradient += grad_out[to] * v[at];
          }
          gradients.push_back(gradient * factors[n]);
          mean += weights[n] * gradients[n];
        }
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double gradient = weights[n] * (gradients[n] - mean);
          if (!bias.empty()) results.grad_bias[number(bias_row + seen[n])] += gradient;
          for (std::int64_t d = 0; d < c.size; ++d) {
            const std::size_t at = number((first + seen[n]) * c.size + d), to = number(row + d);
            results.grad_q[to] += scale * gradient * k[at];
            results.grad_k[at] += scale * gradient * q[to];
          }
        }
      }
  return results;
}

}  // namespace keel::testing
