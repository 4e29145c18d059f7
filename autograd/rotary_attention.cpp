#include "keel/autograd/parameter_gradient.h"
#include "keel/autograd/rotary.h"

namespace keel {
namespace {

// A stretch of a batch whose positions see each other: a span, or all rows.
struct Stretch {
  std::int64_t row_begin, row_end, begin, end;

  // Of (batch, heads, time, ...).
  Tensor of(const Tensor& x) const { return x.slice(0, row_begin, row_end).slice(2, begin, end); }
  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t time() const { return end - begin; }
};

std::vector<Stretch> stretches_of(const AttentionSpans& spans, const Tensor& qkv) {
  if (!spans) return {{0, qkv.dim(0), 0, qkv.dim(1)}};
  std::vector<Stretch> stretches;
  for (const AttentionSpan& span : *spans) {
    KEEL_CHECK(
        0 <= span.row && span.row < qkv.dim(0) && 0 <= span.begin && span.begin < span.end && span.end <= qkv.dim(1),
        "attention: positions [", span.begin, ", ", span.end, ") of row ", span.row, " are not in ", qkv);
    stretches.push_back({span.row, span.row + 1, span.begin, span.end});
  }
  return stretches;
}

Tensor rows_of(const Tensor& x, const Stretch& part) {
  return x.defined() ? x.slice(0, part.row_begin, part.row_end) : x;
}

// What the forward and the backward pass agree on.
struct RotaryAttention {
  int heads, kv_heads;
  Rotary rotary;
  AttentionSpans spans;
  AttentionOptions options;
  bool has_norms;
  double epsilon;

  // (batch, time, heads * size) as (batch, heads, time, size).
  Tensor by_head(const Tensor& x, std::int64_t count) const {
    return x.view({x.dim(0), x.dim(1), count, x.dim(2) / count}).transpose(1, 2);
  }
  RotaryArgs turn(const Tensor& x, const Stretch& part) const {
    RotaryArgs args;
    args.x = part.of(x);
    args.table = rotary.table;
    args.first = rotary.first;
    if (!rotary.positions.defined()) return args;
    const Tensor& given = rotary.positions;
    const bool per_row = given.rank() == 2;
    KEEL_CHECK(given.shape() == Dims{x.dim(2)} || given.shape() == Dims{x.dim(0), x.dim(2)},
               "rotary: positions must be (time) or (batch, time) of ", x, ", got ", given);
    args.positions = (per_row ? rows_of(given, part) : given).slice(-1, part.begin, part.end);
    return args;
  }
  AttentionArgs attend(const Tensor& q, const Tensor& k, const Tensor& v, const Stretch& part) const {
    AttentionOptions own = options;
    if (spans && own.dropout.sample_ids.defined()) {
      own.dropout.sample_ids = rows_of(own.dropout.sample_ids, part);
      own.dropout.position += part.begin;
    }
    return attention_args(part.of(q), part.of(k), part.of(v), own);
  }
};

// Numbers of (batch, heads, time), stretch after stretch.
class OfStretches {
 public:
  OfStretches(Tensor values, std::int64_t heads) : values_(std::move(values)), heads_(heads) {}
  Tensor next(const Stretch& part) {
    if (!values_.defined()) return {};
    const std::int64_t begin = at_;
    at_ += part.rows() * heads_ * part.time();
    return values_.slice(0, begin, at_).view({part.rows(), heads_, part.time()});
  }

 private:
  Tensor values_;
  std::int64_t heads_, at_ = 0;
};

}  // namespace
}  // namespace keel
