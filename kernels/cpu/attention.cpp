#include "keel/kernels/cpu/attention_options.h"
#include "keel/kernels/cpu/attention_rows.h"
#include "keel/kernels/cpu/attention_shape.h"
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
        lse_(args.lse.data<Sum>()),
        bias_(args.bias),
        dropout_(args) {}

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

    const KeyRange packed = shape_.packed(b);
    const std::int64_t size = shape_.size;
    const Workspace<Unit> key_units(context_, packed_right_units<T>(size, packed.count()));
    const Workspace<Unit> value_units(context_, packed_right_units<T>(packed.count(), size));
    const PackedRight<T> keys = {key_units.data(), size, packed.count()};
    const PackedRight<T> values = {value_units.data(), packed.count(), size};
    pack_right<T>(k_.matrix(b, kv_head, packed.begin).transposed(), keys);
    pack_right<T>(v_.matrix(b, kv_head, packed.begin), values);

    const std::int64_t rows = shape_.block_extent, stride = shape_.score_stride();
    const Workspace<Sum> scores(context_, rows * stride), block_out(context_, rows * size);
    const Workspace<Unit> left(
        context_, std::max(left_workspace_units<T>(rows, size), left_workspace_units<T>(rows, shape_.width())));
    const Workspace<Weight<T>> own_weights(context_, std::is_same_v<Weight<T>, Sum> ? 0 : rows * stride);
    const Workspace<std::uint16_t> bits(context_, dropout_ ? shape_.width() : 0);
    Weight<T>* weights = own_weights.data();
    if constexpr (std::is_same_v<Weight<T>, Sum>) weights = scores.data();
    shape_.for_each_block(kv_head, chunk, [&](const QueryBlock& queries) {
      const KeyRange seen = shape_.template columns<T>(b, queries);
      const std::int64_t first = seen.begin - packed.begin;  // in what is packed
      multiply_packed<T>(queries.rows(), seen.count(), size, static_cast<Sum>(shape_.scale),
                         q_.matrix(b, queries.head, queries.begin), keys, false, scores.data(), stride, left.data(),
                         {.column = first});
      Sum inverse[kQueryBlock];
      softmax(scores.data(), weights, b, queries, seen, bits.data(), inverse);
      const MatrixView<Weight<T>> probabilities = {weights, stride, 1};
      multiply_packed<T>(queries.rows(), size, whole_units<T>(seen.count()), Sum(1), probabilities, values, false,
                         block_out.data(), size, left.data(), {.row = first});
      for (std::int64_t i = 0; i < queries.rows(); ++i) {
        T* out = out_.row(b, queries.head, queries.begin + i);
        const Sum* row = block_out.data() + i * size;
        for (std::int64_t d = 0; d < size; ++d) out[d] = T(row[d] * inverse[i]);
      }
    });
  }

  // scores: of the keys `columns`. weights: exponentials of the scores, zero where a key is hidden or dropped; inverse:
  // what makes probabilities of them.
  template <class W>
  void softmax(Sum* scores, W* weights, std::int64_t b, const QueryBlock& queries, const KeyRange& columns,
               std::uint16_t* bits, Sum* inverse) const {
    constexpr Sum kHidden = -std::numeric_limits<Sum>::infinity();
    Sum largest[kQueryBlock], sums[kQueryBlock];
    for (std::int64_t i = 0; i < queries.rows(); ++i) {
      const std::int64_t query = queries.begin + i;
      Sum* row = scores + i * shape_.score_stride();
      W* weight_row = weights + i * shape_.score_stride();
      const KeyRange seen = shape_.seen(b, query).from(columns.begin);
      if (bias_) bias_.add_to(row + seen.begin, b, queries.head, query, columns.begin + seen.begin, seen.count());
      begin_row(row, seen.begin, kHidden);
      finish_row<W>(row, seen.end, kHidden);
      largest[i] = seen.end == 0 ? Sum(0) : row_max(row, padded<W>(seen.end));
      if (bias_ && largest[i] == kHidden) largest[i] = 0;  // the bias hides them all
      sums[i] = exponentials(row, padded<W>(seen.end), largest[i], weight_row);
      if (dropout_ && seen.end != 0) {
        dropout_.draw(b, queries.head, query, columns.begin, seen.end, bits);
        dropout_.drop(bits, seen.end, weight_row);
      }
      clear_weights(weight_row, padded<W>(seen.end), columns.count());
    }
    const auto whole = static_cast<Sum>(dropout_.scale());
    Sum* lse = lse_ + (b * shape_.heads + queries.head) * shape_.queries + queries.begin;
    for (std::int64_t i = 0; i < queries.rows(); ++i) {
      lse[i] = largest[i] + math::log(sums[i]);  // -infinity where no key is seen
      inverse[i] = sums[i] == 0 ? Sum(0) : whole / sums[i];
    }
  }

  // A few queries: each key and value is read once from where it lies.
  void run_rows(std::int64_t b, std::int64_t kv_head, std::int64_t chunk) const {
    const Workspace<Sum> scores(context_, shape_.score_stride()), sums(context_, shape_.size);
    const Workspace<std::uint16_t> bits(context_, dropout_ ? shape_.width() : 0);
    for (std::int64_t row = chunk; row < shape_.group * shape_.queries; row += shape_.chunks) {
      const std::int64_t head = kv_head * shape_.group + row / shape_.queries, query = row % shape_.queries;
      const KeyRange seen = shape_.seen(b, query);
      const T* q = q_.row(b, head, query);
      for (std::int64_t j = seen.begin; j < seen.end; ++j)
        scores.data()[j - seen.begin] =
            static_cast<Sum>(shape_.scale) * dot<Sum>(q, k_.row(b, kv_head, j), shape_.size);
      Sum inverse;
      softmax(scores.data(), scores.data(), b, QueryBlock{head, query, query + 1}, seen, bits.data(), &inverse);
      std::fill(sums.data(), sums.data() + shape_.size, Sum(0));
      for (std::int64_t j = seen.begin; j < seen.end; ++j) {
        const T* value = v_.row(b, kv_head, j);
        const Sum weight = scores.data()[j - seen.begin] * inverse;
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
  BiasRows<T> bias_;
  WeightDropout dropout_;
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
