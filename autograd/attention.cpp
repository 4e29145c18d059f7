#include "keel/autograd/attention.h"

#include <algorithm>

#include "keel/autograd/flops.h"

namespace keel {
namespace {

// (batch, time, heads * size) seen as (batch, heads, time, size).
Tensor by_head(const Tensor& x, std::int64_t heads) {
  return x.view({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).transpose(1, 2);
}

// Of the scores of all pairs that see each other, and of the sums of values.
double flops_of(const AttentionArgs& args) {
  const std::int64_t queries = args.q.dim(2), keys = args.k.dim(2);
  double pairs = static_cast<double>(queries) * static_cast<double>(keys);
  if (args.causal) {
    pairs = 0;
    for (std::int64_t i = 0; i < queries; ++i)
      pairs += static_cast<double>(std::clamp<std::int64_t>(i + args.q_offset + 1, 0, keys));
  }
  return 2 * pairs * static_cast<double>(args.q.dim(0) * args.q.dim(1) * (args.q.dim(3) + args.v.dim(3)));
}

AttentionArgs attend(const AttentionArgs& args) {
  AttentionArgs done = kernels::attention(args);
  count_flops(flops_of(done));
  return done;
}

AttentionBackwardArgs attend_backward(const AttentionBackwardArgs& args) {
  AttentionBackwardArgs done = kernels::attention_backward(args);
  count_flops(2 * flops_of(done.forward));
  return done;
}

}  // namespace

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
                  AttentionBackwardArgs backward;
                  backward.forward = attention_args(saved[0], saved[1], saved[2], options);
                  backward.grad_out = grad[0];
                  backward.forward.out = saved[3];
                  backward.forward.lse = saved[4];
                  const AttentionBackwardArgs done = attend_backward(backward);
                  return {done.grad_q, done.grad_k, done.grad_v};
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
