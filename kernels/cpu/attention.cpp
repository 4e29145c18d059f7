#include "keel/kernels/cpu/attention_rows.h"
#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/runtime/parallel.h"

// Scores exist for one block of queries at a time, against all keys that it sees. A row of scores is
// complete before its softmax, so nothing is rescaled; the sums are divided out of the block's output.
namespace keel::cpu {
namespace {

template <class T>
class Forward {
 public:
  using Sum = Accumulator<T>;
  using Unit = UnitOf<T>;

  explicit Forward(const AttentionArgs& args)
      : shape_(args),
        context_(args.q.context()),
        q_(args.q),
        k_(args.k),
        v_(args.v),
        out_(args.out),
        lse_(args.lse.data<Sum>()) {}

  void run() const {
    parallel_for(context_, shape_.tasks(), shape_.grain(2), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) run_task(task);
    });
  }

 private:
  // Query rows that share keys below which packing them does not pay (generation: one row).
  static constexpr std::int64_t kFewRows = 4;

  void run_task(std::int64_t task) const {
    const std::int64_t pair = task / shape_.chunks, chunk = task % shape_.chunks;
    const std::int64_t b = pair / shape_.kv_heads, kv_head = pair % shape_.kv_heads;
    if (shape_.group * shape_.queries <= kFewRows) return run_rows(b, kv_head, chunk);

    const std::int64_t limit = shape_.key_limit(b), size = shape_.size;
    const Workspace<Unit> key_units(context_, packed_right_units<T>(size, limit));
    const Workspace<Unit> value_units(context_, packed_right_units<T>(limit, size));
    const PackedRight<T> keys = {key_units.data(), size, limit}, values = {value_units.data(), limit, size};
    pack_right<T>(k_.matrix(b, kv_head).transposed(), keys);
    pack_right<T>(v_.matrix(b, kv_head), values);

    const std::int64_t rows = shape_.block_extent, stride = shape_.score_stride();
    const Workspace<Sum> scores(context_, rows * stride), block_out(context_, rows * size);
    const Workspace<Unit> left(context_,
                               std::max(left_workspace_units<T>(rows, size), left_workspace_units<T>(rows, limit)));
    const Workspace<Weight<T>> own_weights(context_, std::is_same_v<Weight<T>, Sum> ? 0 : rows * stride);
    Weight<T>* weights = own_weights.data();
    if constexpr (std::is_same_v<Weight<T>, Sum>) weights = scores.data();
    for (std::int64_t block = chunk; block < shape_.blocks; block += shape_.chunks) {
      const QueryBlock queries = query_block(shape_, kv_head, block);
      const std::int64_t seen = shape_.visible(b, queries.end - 1);
      multiply_packed<T>(queries.rows(), seen, size, static_cast<Sum>(shape_.scale),
                         q_.matrix(b, queries.head, queries.begin), keys, false, scores.data(), stride, left.data());
      Sum inverse[kQueryBlock];
      softmax(scores.data(), weights, b, queries, seen, inverse);
      const MatrixView<Weight<T>> probabilities = {weights, stride, 1};
      multiply_packed<T>(queries.rows(), size, whole_units<T>(seen), Sum(1), probabilities, values, false,
                         block_out.data(), size, left.data());
      for (std::int64_t i = 0; i < queries.rows(); ++i) {
        T* out = out_.row(b, queries.head, queries.begin + i);
        const Sum* row = block_out.data() + i * size;
        for (std::int64_t d = 0; d < size; ++d) out[d] = T(row[d] * inverse[i]);
      }
    }
  }

  // weights: exponentials of the scores, zero from the first hidden key up to `end`; inverse: 1 / their sums.
  template <class W>
  void softmax(Sum* scores, W* weights, std::int64_t b, const QueryBlock& queries, std::int64_t end,
               Sum* inverse) const {
    Sum largest[kQueryBlock], sums[kQueryBlock];
    for (std::int64_t i = 0; i < queries.rows(); ++i) {
      Sum* row = scores + i * shape_.score_stride();
      W* weight_row = weights + i * shape_.score_stride();
      const std::int64_t seen = shape_.visible(b, queries.begin + i);
      finish_row<W>(row, seen, -std::numeric_limits<Sum>::infinity());
      largest[i] = seen == 0 ? Sum(0) : row_max(row, padded<W>(seen));
      sums[i] = exponentials(row, padded<W>(seen), largest[i], weight_row);
      clear_weights(weight_row, padded<W>(seen), end);
    }
    Sum* lse = lse_ + (b * shape_.heads + queries.head) * shape_.queries + queries.begin;
    for (std::int64_t i = 0; i < queries.rows(); ++i) {
      lse[i] = largest[i] + math::log(sums[i]);  // -infinity where no key is seen
      inverse[i] = sums[i] == 0 ? Sum(0) : 1 / sums[i];
    }
  }

  // A few queries: each key and value is read once from where it lies.
  void run_rows(std::int64_t b, std::int64_t kv_head, std::int64_t chunk) const {
    const Workspace<Sum> scores(context_, shape_.score_stride()), sums(context_, shape_.size);
    for (std::int64_t row = chunk; row < shape_.group * shape_.queries; row += shape_.chunks) {
      const std::int64_t head = kv_head * shape_.group + row / shape_.queries, query = row % shape_.queries;
      const std::int64_t seen = shape_.visible(b, query);
      const T* q = q_.row(b, head, query);
      for (std::int64_t j = 0; j < seen; ++j)
        scores.data()[j] = static_cast<Sum>(shape_.scale) * dot<Sum>(q, k_.row(b, kv_head, j), shape_.size);
      Sum inverse;
      softmax(scores.data(), scores.data(), b, QueryBlock{head, query, query + 1}, seen, &inverse);
      std::fill(sums.data(), sums.data() + shape_.size, Sum(0));
      for (std::int64_t j = 0; j < seen; ++j) {
        const T* value = v_.row(b, kv_head, j);
        const Sum weight = scores.data()[j] * inverse;
        Sum* sum = sums.data();
        for (std::int64_t d = 0; d < shape_.size; ++d) sum[d] += weight * static_cast<Sum>(value[d]);
      }
      T* out = out_.row(b, head, query);
      for (std::int64_t d = 0; d < shape_.size; ++d) out[d] = T(sums.data()[d]);
    }
  }

  AttentionShape shape_;
  const Context& context_;
  Heads<T> q_, k_, v_, out_;
  Sum* lse_;
};

void attention(const AttentionArgs& args) {
  visit_floating(args.q.dtype(), [&](auto tag) { Forward<typename decltype(tag)::type>(args).run(); });
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args);  // attention_backward.cpp

void add_attention(KernelTable& table) {
  table.attention = attention;
  table.attention_backward = attention_backward;
}

}  // namespace keel::cpu
