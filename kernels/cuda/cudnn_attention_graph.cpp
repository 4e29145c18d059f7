#include <limits>

#include "keel/kernels/cuda/cudnn_attention.h"

// cuDNN knows attention by the shape of a graph: two matrix products with a softmax written out between them, forward,
// and the chain of its derivatives, backward. It has single operations for it, too (CUDNN_BACKEND_OPERATION_SDPA_FWD
// and _BWD), but the one has no attribute for a causal mask before 9.21, and cuDNN proposes no engine for the other
// before 9.27. The graphs below are what every version takes.
namespace keel::cuda::cudnn {
namespace {

constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT, kInt = CUDNN_DATA_INT32, kBool = CUDNN_DATA_BOOLEAN;

Extents transposed(const Extents& x) { return {x[0], x[1], x[3], x[2]}; }

Extents strides_of(const Tensor& x) { return {x.stride(0), x.stride(1), x.stride(2), 1}; }

class Builder {
 public:
  explicit Builder(const AttentionCase& which)
      : c_(which),
        query_shape_{c_.batch, c_.heads, c_.queries, c_.size},
        key_shape_{c_.batch, c_.kv_heads, c_.keys, c_.size},
        score_shape_{c_.batch, c_.heads, c_.queries, c_.keys},
        row_shape_{c_.batch, c_.heads, c_.queries, 1} {
    if (!c_.padded) return;
    const Extents shape = {c_.batch, 1, 1, 1}, strides = {1, 1, 1, 1};
    p_.query_lengths = graph_.device(kInt, shape, strides);
    p_.key_lengths = graph_.device(kInt, shape, strides);
    query_lengths_ = p_.query_lengths;
    key_lengths_ = p_.key_lengths;
  }

  AttentionPlan forward(const Target& target) {
    p_.q = graph_.device(c_.type, query_shape_, c_.q);
    p_.k = graph_.device(c_.type, transposed(key_shape_), transposed(c_.k));
    p_.v = graph_.device(c_.type, key_shape_, c_.v);
    p_.out = graph_.device(c_.type, query_shape_, c_.out);
    p_.lse = graph_.device(kFloat, row_shape_, dense(row_shape_));

    const Uid scores = causal_mask(padding_mask(scaled_scores()));
    const Uid largest = row(), sums = row(), logs = row(), shifted = scores_like(), weights = scores_like();
    const Uid probabilities = graph_.between(c_.type, score_shape_);
    graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
    graph_.pointwise(CUDNN_POINTWISE_SUB, {scores, largest}, shifted);
    graph_.pointwise(CUDNN_POINTWISE_EXP, {shifted}, weights);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, sums);
    graph_.pointwise(CUDNN_POINTWISE_LOG, {sums}, logs);
    graph_.pointwise(CUDNN_POINTWISE_ADD, {largest, logs}, p_.lse);
    graph_.pointwise(CUDNN_POINTWISE_DIV, {weights, sums}, probabilities);
    graph_.matmul(probabilities, p_.v, p_.out, {.rows = query_lengths_, .inner = key_lengths_});
    return planned(target);
  }

  AttentionPlan backward(const Target& target) {
    p_.q = graph_.device(c_.type, query_shape_, c_.q);
    p_.k = graph_.device(c_.type, transposed(key_shape_), transposed(c_.k));
    p_.v = graph_.device(c_.type, transposed(key_shape_), transposed(c_.v));
    p_.out = graph_.device(c_.type, query_shape_, c_.out);
    p_.grad_out = graph_.device(c_.type, query_shape_, c_.grad_out);
    p_.lse = graph_.device(kFloat, row_shape_, dense(row_shape_));
    p_.grad_q = graph_.device(c_.type, query_shape_, c_.grad_q);
    p_.grad_k = graph_.device(c_.type, key_shape_, c_.grad_k);
    p_.grad_v = graph_.device(c_.type, key_shape_, c_.grad_v);
    p_.delta = graph_.device(kFloat, row_shape_, dense(row_shape_));

    // delta = rowsum(grad_out out); the factor of 1 stands where a dropout's would.
    const Uid products = graph_.between(kFloat, query_shape_), delta = row(), one = graph_.scalar(1.0f);
    graph_.pointwise(CUDNN_POINTWISE_MUL, {p_.grad_out, p_.out}, products);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, delta);
    graph_.pointwise(CUDNN_POINTWISE_MUL, {delta, one}, p_.delta);

    // P = exp(scores - lse); grad_v = P^T grad_out.
    const Uid shifted = scores_like(), weights = scores_like();
    const Uid scores = scaled_scores();
    graph_.pointwise(CUDNN_POINTWISE_SUB, {scores, p_.lse}, shifted);
    graph_.pointwise(CUDNN_POINTWISE_EXP, {causal_mask(padding_mask(shifted))}, weights);
    transposed_product(weights, p_.grad_out, p_.grad_v);

    // dS = scale P (grad_out v^T - delta); grad_k = dS^T q, grad_q = dS k. That grad_q is written at once, and not
    // added up in fp32 by many blocks, asks for the deterministic algorithm.
    const Uid grads = scores_like(), centred = scores_like(), weighted = scores_like(), grad_scores = scores_like();
    graph_.matmul(p_.grad_out, p_.v, grads, {.rows = query_lengths_, .columns = key_lengths_});
    graph_.pointwise(CUDNN_POINTWISE_SUB, {grads, p_.delta}, centred);
    graph_.pointwise(CUDNN_POINTWISE_MUL, {centred, weights}, weighted);
    graph_.pointwise(CUDNN_POINTWISE_MUL, {weighted, scale_}, grad_scores);
    transposed_product(grad_scores, p_.q, p_.grad_k);
    const Uid key_rows = graph_.between(c_.type, key_shape_, c_.k);
    graph_.reshape(p_.k, key_rows);
    graph_.matmul(grad_scores, key_rows, p_.grad_q, {.rows = query_lengths_, .inner = key_lengths_});
    return planned(target);
  }

 private:
  Uid row() { return graph_.between(kFloat, row_shape_); }
  Uid scores_like(cudnnDataType_t type = kFloat) { return graph_.between(type, score_shape_); }

  Uid scaled_scores() {
    const Uid products = scores_like(), scores = scores_like();
    scale_ = graph_.scalar(c_.scale);
    graph_.matmul(p_.q, p_.k, products, {.rows = query_lengths_, .columns = key_lengths_});
    graph_.pointwise(CUDNN_POINTWISE_MUL, {products, scale_}, scores);
    return scores;
  }

  // Minus infinity where `visible` is false.
  Uid masked(Uid scores, Uid visible) {
    const Uid result = scores_like(), hidden = graph_.scalar(-std::numeric_limits<float>::infinity());
    graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, hidden, visible}, result);
    return result;
  }

  Uid padding_mask(Uid scores) {
    if (!c_.padded) return scores;
    const Uid i = scores_like(kInt), j = scores_like(kInt);
    const Uid real_row = scores_like(kBool), real_column = scores_like(kBool), real = scores_like(kBool);
    graph_.index(2, scores, i, kInt);
    graph_.index(3, scores, j, kInt);
    graph_.pointwise(CUDNN_POINTWISE_CMP_LT, {i, *query_lengths_}, real_row, kBool);
    graph_.pointwise(CUDNN_POINTWISE_CMP_LT, {j, *key_lengths_}, real_column, kBool);
    graph_.pointwise(CUDNN_POINTWISE_LOGICAL_AND, {real_row, real_column}, real, kBool);
    return masked(scores, real);
  }

  Uid causal_mask(Uid scores) {
    if (!c_.causal) return scores;
    Uid i = scores_like(kInt);
    const Uid j = scores_like(kInt), visible = scores_like(kBool);
    graph_.index(2, scores, i, kFloat);
    graph_.index(3, scores, j, kFloat);
    if (c_.q_offset != 0) {
      const Uid moved = scores_like(kInt), offset = graph_.scalar(static_cast<std::int32_t>(c_.q_offset));
      graph_.pointwise(CUDNN_POINTWISE_ADD, {i, offset}, moved, kInt);
      i = moved;
    }
    graph_.pointwise(CUDNN_POINTWISE_CMP_GE, {i, j}, visible, kBool);
    return masked(scores, visible);
  }

  // result = x^T rows, summed over the heads that share one of `result`.
  void transposed_product(Uid x, Uid rows, Uid result) {
    const Extents turned = {score_shape_[0], score_shape_[1], score_shape_[3], score_shape_[2]};
    const Extents strides = dense(score_shape_);
    const Uid columns = graph_.between(c_.type, turned, {strides[0], strides[1], strides[3], strides[2]});
    graph_.reshape(x, columns);
    const Graph::Lengths lengths = {.rows = key_lengths_, .inner = query_lengths_};
    if (c_.heads == c_.kv_heads) return graph_.matmul(columns, rows, result, lengths);
    const Uid each = graph_.between(c_.type, {c_.batch, c_.heads, c_.keys, c_.size});
    graph_.matmul(columns, rows, each, lengths);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, each, result);
  }

  AttentionPlan planned(const Target& target) {
    p_.plan = graph_.plan(target);
    return std::move(p_);
  }

  AttentionCase c_;
  Extents query_shape_, key_shape_, score_shape_, row_shape_;
  std::optional<Uid> query_lengths_, key_lengths_;
  Uid scale_ = 0;
  Graph graph_;
  AttentionPlan p_;
};

}  // namespace

AttentionCase::AttentionCase(const AttentionArgs& args)
    : type(args.q.dtype() == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
      batch(args.q.dim(0)),
      heads(args.q.dim(1)),
      kv_heads(args.k.dim(1)),
      queries(args.q.dim(2)),
      keys(args.k.dim(2)),
      size(args.q.dim(3)),
      q(strides_of(args.q)),
      k(strides_of(args.k)),
      v(strides_of(args.v)),
      out(strides_of(args.out)),
      causal(args.causal && args.q_offset < keys),  // else no key is hidden
      padded(args.lengths.defined()),
      q_offset(causal ? args.q_offset : 0),
      scale(static_cast<float>(args.scale)) {}

AttentionCase::AttentionCase(const AttentionBackwardArgs& args) : AttentionCase(args.forward) {
  backward = true;
  grad_out = strides_of(args.grad_out);
  grad_q = strides_of(args.grad_q);
  grad_k = strides_of(args.grad_k);
  grad_v = strides_of(args.grad_v);
}

AttentionPlan plan_attention(const AttentionCase& which, const Target& target) {
  Builder builder(which);
  return which.backward ? builder.backward(target) : builder.forward(target);
}

}  // namespace keel::cuda::cudnn
