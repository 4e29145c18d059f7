#include "keel/autograd/flops.h"
#include "keel/autograd/parameter_gradient.h"
#include "keel/autograd/rotary.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// A stretch of a batch whose positions see each other: a span, or all rows.
struct Stretch {
  std::int64_t row_begin, row_end, begin, end;

  // Of (batch, heads, time, size).
  Tensor of(const Tensor& x) const { return rows_of(x).slice(2, begin, end); }
  Tensor rows_of(const Tensor& x) const { return x.slice(0, row_begin, row_end); }
};

std::vector<Stretch> stretches_of(const AttentionSpans& spans, const Tensor& qkv, const AttentionOptions& options) {
  if (!spans) return {{0, qkv.dim(0), 0, qkv.dim(1)}};
  check_spans(*spans, qkv, options);
  std::vector<Stretch> stretches;
  for (const AttentionSpan& span : *spans) stretches.push_back({span.row, span.row + 1, span.begin, span.end});
  return stretches;
}

// Numbers of (batch, heads, time), stretch after stretch.
class NumbersOfStretches {
 public:
  NumbersOfStretches(Tensor values, std::int64_t heads) : values_(std::move(values)), heads_(heads) {}
  Tensor next(const Stretch& part) {
    const std::int64_t rows = part.row_end - part.row_begin, time = part.end - part.begin, begin = at_;
    at_ += rows * heads_ * time;
    return values_.defined() ? values_.slice(0, begin, at_).view({rows, heads_, time}) : values_;
  }

 private:
  Tensor values_;
  std::int64_t heads_, at_ = 0;
};

// (batch, time, heads * size) as (batch, heads, time, size).
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return x.view({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).transpose(1, 2);
}

// Queries and keys of all heads, in a tensor (batch, heads + kv_heads or more, time, size).
struct QueriesAndKeys {
  Tensor both, q, k;
  QueriesAndKeys(const Tensor& x, std::int64_t heads, std::int64_t kv_heads)
      : both(x.slice(1, 0, heads + kv_heads)), q(x.slice(1, 0, heads)), k(x.slice(1, heads, heads + kv_heads)) {}
};

// What forward and backward agree on.
struct RotaryAttention {
  int heads, kv_heads;
  Rotary rotary;
  AttentionSpans spans;
  AttentionOptions options;
  double epsilon;

  Tensor split(const Tensor& qkv) const { return split_heads(qkv, heads + 2 * kv_heads); }
  QueriesAndKeys queries_and_keys(const Tensor& by_head) const { return {by_head, heads, kv_heads}; }
  Tensor values(const Tensor& by_head) const { return by_head.slice(1, heads + kv_heads, heads + 2 * kv_heads); }

  RotaryArgs turn(const Tensor& x, const Stretch& part, const Tensor& weight = {}, const Tensor& rstd = {}) const {
    RotaryArgs args;
    args.x = part.of(x);
    args.table = rotary.table;
    args.first = rotary.first;
    args.weight = weight;
    args.epsilon = epsilon;
    args.rstd = rstd;
    if (!rotary.positions.defined()) return args;
    const Tensor& given = rotary.positions;
    const bool for_each_row = given.shape() == Dims{x.dim(0), x.dim(2)};
    const Dims shared = {x.dim(2)}, shared_row = {1, x.dim(2)};
    KEEL_CHECK(for_each_row || given.shape() == shared || given.shape() == shared_row, "rotary: positions must be [",
               x.dim(2), "] or ", Dims{x.dim(0), x.dim(2)}, ", got ", given);
    args.positions = (for_each_row ? part.rows_of(given) : given).slice(-1, part.begin, part.end);
    return args;
  }
  // Positions of dropout are those in the row.
  AttentionArgs attend(const QueriesAndKeys& turned, const Tensor& v, const Stretch& part) const {
    AttentionOptions own = options;
    if (spans && own.dropout.probability != 0) {
      own.dropout.sample_ids = part.rows_of(own.dropout.sample_ids);
      own.dropout.position += part.begin;
    }
    return attention_args(part.of(turned.q), part.of(turned.k), part.of(v), own);
  }
};

// What one stretch of a norm's gradient goes to: the parameter's buffer, to which later stretches add.
struct NormGradient {
  Tensor into;
  bool add = false;

  // Turns the gradient back, in place.
  void turn_back(RotaryArgs forward, const Tensor& grad) {
    RotaryBackwardArgs args;
    args.forward = std::move(forward);
    args.grad_out = args.grad_x = grad;
    args.grad_weight = into;
    args.add_weight = add;
    kernels::rotary_backward(args);
    add = true;
  }
};

}  // namespace

Variable attention_rotary(const Variable& qkv, int heads, int kv_heads, const Rotary& rotary,
                          const AttentionSpans& spans, const AttentionOptions& options, const HeadNorms& norms) {
  const bool has_norms = norms.query.defined();
  KEEL_CHECK(has_norms == norms.key.defined(), "attention_rotary: queries and keys have a norm both or neither");
  const std::int64_t size = unpack_qkv(qkv.value(), heads, kv_heads).q.dim(3), batch = qkv.dim(0), time = qkv.dim(1);
  const RotaryAttention plan{heads, kv_heads, rotary, spans, options, norms.epsilon};
  const std::vector<Stretch> stretches = stretches_of(spans, qkv.value(), options);
  const DType sums = qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;

  const Dims shape{batch, time, heads * size};
  const Tensor out = spans ? zeros(qkv.context(), shape, qkv.dtype()) : empty(qkv.context(), shape, qkv.dtype());
  const Tensor turned = empty(qkv.context(), {batch, time, (heads + kv_heads) * size}, qkv.dtype());
  const Tensor lse = empty(qkv.context(), {heads * batch * time}, sums);
  const auto rstd_of = [&](int count) {
    return has_norms ? empty(qkv.context(), {count * batch * time}, sums) : Tensor();
  };
  const Tensor q_rstd = rstd_of(heads), k_rstd = rstd_of(kv_heads);

  const Tensor in = plan.split(qkv.value());
  const QueriesAndKeys from = plan.queries_and_keys(in), to(split_heads(turned, heads + kv_heads), heads, kv_heads);
  NumbersOfStretches each_lse(lse, heads), each_q(q_rstd, heads), each_k(k_rstd, kv_heads);
  for (const Stretch& part : stretches) {
    const auto turn = [&](const Tensor& x, const Tensor& into, const Tensor& weight, const Tensor& rstd) {
      RotaryArgs args = plan.turn(x, part, weight, rstd);
      args.out = part.of(into);
      kernels::rotary(args);
    };
    if (has_norms) {
      turn(from.q, to.q, norms.query.value(), each_q.next(part));
      turn(from.k, to.k, norms.key.value(), each_k.next(part));
    } else {
      turn(from.both, to.both, {}, {});
    }
    AttentionArgs args = plan.attend(to, plan.values(in), part);
    args.out = part.of(split_heads(out, heads));
    args.lse = each_lse.next(part);
    kernels::attention(args);
    count_flops(attention_flops(args));
  }

  return record(
      "attention_rotary", out, {qkv, norms.query, norms.key},
      {qkv.value(), turned, out, lse, q_rstd, k_rstd, has_norms ? norms.query.value() : Tensor(),
       has_norms ? norms.key.value() : Tensor()},
      [plan, stretches, has_norms](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
        const Tensor grad_qkv =
            plan.spans ? zeros(saved[0].context(), saved[0].shape(), saved[0].dtype()) : empty_like(saved[0]);
        NormGradient of_query, of_key;
        if (has_norms) {
          place_parameter_gradient(need, 1, saved[6], of_query.into, of_query.add);
          place_parameter_gradient(need, 2, saved[7], of_key.into, of_key.add);
        }
        const int heads = plan.heads, kv_heads = plan.kv_heads;
        if (stretches.empty())
          for (const NormGradient& each : {of_query, of_key})
            if (each.into.defined() && !each.add) kernels::fill(each.into, 0);
        const Tensor in = plan.split(saved[0]), to = plan.split(grad_qkv);
        const QueriesAndKeys turned(split_heads(saved[1], heads + kv_heads), heads, kv_heads);
        const QueriesAndKeys from = plan.queries_and_keys(in), back = plan.queries_and_keys(to);
        NumbersOfStretches each_lse(saved[3], heads), each_q(saved[4], heads), each_k(saved[5], kv_heads);
        for (const Stretch& part : stretches) {
          AttentionBackwardArgs args;
          args.forward = plan.attend(turned, plan.values(in), part);
          args.forward.out = part.of(split_heads(saved[2], heads));
          args.forward.lse = each_lse.next(part);
          args.grad_out = part.of(split_heads(grad[0], heads));
          args.grad_q = part.of(back.q);
          args.grad_k = part.of(back.k);
          args.grad_v = part.of(plan.values(to));
          kernels::attention_backward(args);
          count_flops(2 * attention_flops(args.forward));
          if (has_norms) {
            of_query.turn_back(plan.turn(from.q, part, saved[6], each_q.next(part)), part.of(back.q));
            of_key.turn_back(plan.turn(from.k, part, saved[7], each_k.next(part)), part.of(back.k));
          } else {
            NormGradient().turn_back(plan.turn(from.both, part), part.of(back.both));
          }
        }
        return {grad_qkv, of_query.into, of_key.into};
      });
}

}  // namespace keel
