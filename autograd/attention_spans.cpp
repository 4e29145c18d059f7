#include "keel/autograd/attention_spans.h"

#include "keel/autograd/flops.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Of (batch, heads, time, size), as a batch of one row.
Tensor part_of(const Tensor& x, const AttentionSpan& span) {
  return x.slice(0, span.row, span.row + 1).slice(2, span.begin, span.end);
}

// Of (batch, time, width): by head.
Tensor part_of(const Tensor& x, const AttentionSpan& span, int heads) {
  const Tensor split = x.view({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).transpose(1, 2);
  return part_of(split, span);
}

// The sums of exponentials lie span after span, each dense (1, heads, time).
class SumsOfSpans {
 public:
  SumsOfSpans(Tensor values, int heads) : values_(std::move(values)), heads_(heads) {}
  Tensor next(const AttentionSpan& span) {
    const std::int64_t time = span.end - span.begin, begin = at_;
    at_ += heads_ * time;
    return values_.slice(0, begin, at_).view({1, heads_, time});
  }

 private:
  Tensor values_;
  std::int64_t heads_, at_ = 0;
};

// Positions of dropout are those in the row.
AttentionArgs args_of(const PackedViews& views, const AttentionSpan& span, AttentionOptions options) {
  if (options.dropout.probability != 0) {
    options.dropout.sample_ids = options.dropout.sample_ids.slice(0, span.row, span.row + 1);
    options.dropout.position += span.begin;
  }
  return attention_args(part_of(views.q, span), part_of(views.k, span), part_of(views.v, span), options);
}

}  // namespace

AttentionSpans spans_of(const Tensor& documents) {
  KEEL_CHECK(documents.defined() && documents.rank() == 2 && documents.dtype() == DType::i32 &&
                 documents.device().type == DeviceType::cpu,
             "documents of packed rows are i32 (batch, time) on the host, got ", documents);
  const std::vector<std::int32_t> numbers = documents.to_vector<std::int32_t>();
  const std::int64_t time = documents.dim(1);
  auto spans = std::make_shared<std::vector<AttentionSpan>>();
  for (std::int64_t row = 0; row < documents.dim(0); ++row) {
    const std::int32_t* at = numbers.data() + row * time;
    for (std::int64_t begin = 0, end = 0; begin < time; begin = end) {
      while (end < time && at[end] == at[begin]) ++end;
      if (at[begin] >= 0) spans->push_back({row, begin, end});
    }
  }
  return spans;
}

std::int64_t check_spans(const std::vector<AttentionSpan>& spans, const Tensor& qkv, const AttentionOptions& options) {
  KEEL_CHECK(options.q_offset == 0 && !options.lengths.defined() && !options.starts.defined(),
             "attention within spans has neither an offset nor starts and lengths: spans say where what begins and "
             "ends");
  const Tensor& ids = options.dropout.sample_ids;
  KEEL_CHECK(options.dropout.probability == 0 || (ids.defined() && ids.shape() == Dims{qkv.dim(0)}),
             "attention within spans: dropout needs `sample_ids`, i64 (", qkv.dim(0), "), one for each row");
  std::int64_t positions = 0;
  for (const AttentionSpan& span : spans) {
    KEEL_CHECK(
        0 <= span.row && span.row < qkv.dim(0) && 0 <= span.begin && span.begin < span.end && span.end <= qkv.dim(1),
        "attention: positions [", span.begin, ", ", span.end, ") of row ", span.row, " are not in ", qkv);
    positions += span.end - span.begin;
  }
  return positions;
}

Variable attention_packed(const Variable& qkv, int heads, int kv_heads, const AttentionSpans& spans,
                          const AttentionOptions& options) {
  if (!spans) return attention_packed(qkv, heads, kv_heads, options);
  const PackedViews views = unpack_qkv(qkv.value(), heads, kv_heads);
  const std::int64_t positions = check_spans(*spans, qkv.value(), options);
  const Tensor out = zeros(qkv.context(), {qkv.dim(0), qkv.dim(1), heads * views.q.dim(3)}, qkv.dtype());
  const Tensor lse = empty(qkv.context(), {heads * positions}, qkv.dtype() == DType::f64 ? DType::f64 : DType::f32);
  SumsOfSpans sums(lse, heads);
  for (const AttentionSpan& span : *spans) {
    AttentionArgs args = args_of(views, span, options);
    args.out = part_of(out, span, heads);
    args.lse = sums.next(span);
    kernels::attention(args);
    count_flops(attention_flops(args));
  }
  return record(
      "attention_spans", out, {qkv}, {qkv.value(), out, lse},
      [heads, kv_heads, spans, options](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
        const PackedViews in = unpack_qkv(saved[0], heads, kv_heads);
        const Tensor grad_qkv = zeros(saved[0].context(), saved[0].shape(), saved[0].dtype());
        const PackedViews to = unpack_qkv(grad_qkv, heads, kv_heads);
        SumsOfSpans each(saved[2], heads);
        for (const AttentionSpan& span : *spans) {
          AttentionBackwardArgs backward;
          backward.forward = args_of(in, span, options);
          backward.forward.out = part_of(saved[1], span, heads);
          backward.forward.lse = each.next(span);
          backward.grad_out = part_of(grad[0], span, heads);
          backward.grad_q = part_of(to.q, span);
          backward.grad_k = part_of(to.k, span);
          backward.grad_v = part_of(to.v, span);
          kernels::attention_backward(backward);
          count_flops(2 * attention_flops(backward.forward));
        }
        return {grad_qkv};
      });
}

}  // namespace keel
