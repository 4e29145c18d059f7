#include "keel/autograd/attention.h"

#include <algorithm>

#include "keel/autograd/flops.h"

namespace keel {
namespace {

// (batch, time, heads * size) seen as (batch, heads, time, size).
Tensor by_head(const Tensor& x, std::int64_t heads) {
  return x.view({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).transpose(1, 2);
}

AttentionArgs attend(const AttentionArgs& args) {
  AttentionArgs done = kernels::attention(args);
  count_flops(attention_flops(done));
  return done;
}

AttentionBackwardArgs attend_backward(const AttentionBackwardArgs& args) {
  AttentionBackwardArgs done = kernels::attention_backward(args);
  count_flops(2 * attention_flops(done.forward));
  return done;
}

// saved: q, k, v, out and lse of the forward call.
AttentionBackwardArgs differentiate(const Saved& saved, const Tensor& grad_out, const AttentionOptions& options,
                                    const Tensor& bias, bool needs_grad_bias) {
  AttentionBackwardArgs backward;
  backward.forward = attention_args(saved[0], saved[1], saved[2], options);
  backward.forward.out = saved[3];
  backward.forward.lse = saved[4];
  backward.forward.bias = bias;
  backward.grad_out = grad_out;
  backward.needs_grad_bias = needs_grad_bias;
  return attend_backward(backward);
}

}  // namespace

// Of the scores and of the sums of values.
double attention_flops(const AttentionArgs& args) {
  const std::int64_t queries = args.q.dim(2), keys = args.k.dim(2);
  const std::int64_t past = std::min(args.window, args.q_offset + queries + keys), ahead = args.causal ? 1 : past;
  double pairs = static_cast<double>(queries) * static_cast<double>(keys);
  if (past != 0 || ahead != 0) {
    pairs = 0;
    for (std::int64_t i = args.q_offset; i < args.q_offset + queries; ++i) {
      const std::int64_t begin = past == 0 ? 0 : std::clamp<std::int64_t>(i - past + 1, 0, keys);
      pairs += static_cast<double>(std::clamp<std::int64_t>(i + ahead, 0, keys) - begin);
    }
  }
  return 2 * pairs * static_cast<double>(args.q.dim(0) * args.q.dim(1) * (args.q.dim(3) + args.v.dim(3)));
}

AttentionArgs attention_args(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  AttentionArgs args;
  args.q = q;
  args.k = k;
  args.v = v;
  args.causal = options.causal;
  args.q_offset = options.q_offset;
  args.lengths = options.lengths;
  args.starts = options.starts;
  args.scale = options.scale;
  args.window = options.window;
  args.dropout = options.dropout;
  return args;
}

PackedViews unpack_qkv(const Tensor& qkv, int heads, int kv_heads) {
  const int total = heads + 2 * kv_heads;
  KEEL_CHECK(qkv.rank() == 3 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && qkv.dim(2) % total == 0,
             "packed attention: ", qkv, " does not hold ", heads, " query and 2 x ", kv_heads, " key/value heads");
  const std::int64_t size = qkv.dim(2) / total;
  const Tensor split = qkv.view({qkv.dim(0), qkv.dim(1), total, size}).transpose(1, 2);
  return {split.slice(1, 0, heads), split.slice(1, heads, heads + kv_heads), split.slice(1, heads + kv_heads, total)};
}

Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const AttentionArgs args = attend(attention_args(q.value(), k.value(), v.value(), options));
  const Tensor out = args.out;
  return record("attention", out, {q, k, v}, {args.q, args.k, args.v, args.out, args.lse},
                [options](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  const AttentionBackwardArgs done = differentiate(saved, grad[0], options, {}, false);
                  return {done.grad_q, done.grad_k, done.grad_v};
                });
}

Variable attention_with_bias(const Variable& q, const Variable& k, const Variable& v, const Variable& bias,
                             const AttentionOptions& options) {
  if (!bias.defined()) return attention(q, k, v, options);
  AttentionArgs args = attention_args(q.value(), k.value(), v.value(), options);
  args.bias = bias.value();
  args = attend(args);
  const Tensor out = args.out;
  return record("attention_with_bias", out, {q, k, v, bias}, {args.q, args.k, args.v, args.out, args.lse, args.bias},
                [options](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  const AttentionBackwardArgs done = differentiate(saved, grad[0], options, saved[5], need[3]);
                  return {done.grad_q, done.grad_k, done.grad_v, done.grad_bias};
                });
}

Variable attention_packed(const Variable& qkv, int heads, int kv_heads, const AttentionOptions& options) {
  const PackedViews views = unpack_qkv(qkv.value(), heads, kv_heads);
  const std::int64_t width = heads * views.q.dim(3);
  const Tensor out = empty(qkv.context(), {qkv.dim(0), qkv.dim(1), width}, qkv.dtype());
  AttentionArgs args = attention_args(views.q, views.k, views.v, options);
  args.out = by_head(out, heads);
  args = attend(args);
  return record("attention_packed", out, {qkv}, {qkv.value(), out, args.lse},
                [heads, kv_heads, options](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  const PackedViews in = unpack_qkv(saved[0], heads, kv_heads);
                  const Tensor grad_qkv = empty_like(saved[0]);
                  const PackedViews to = unpack_qkv(grad_qkv, heads, kv_heads);
                  AttentionBackwardArgs backward;
                  backward.forward = attention_args(in.q, in.k, in.v, options);
                  backward.grad_out = by_head(grad[0], heads);
                  backward.grad_q = to.q;
                  backward.grad_k = to.k;
                  backward.grad_v = to.v;
                  backward.forward.out = by_head(saved[1], heads);
                  backward.forward.lse = saved[2];
                  attend_backward(backward);
                  return {grad_qkv};
                });
}

}  // namespace keel
