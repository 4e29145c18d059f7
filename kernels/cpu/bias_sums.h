#pragma once
// The gradient of attention's bias: rows of the scores' gradient, summed over what the bias is one for.
//
// A number of the gradient is summed by one task at a time, so that the order is the same at any number of threads: a
// bias that samples or heads share takes a round for each of them, and a task has all heads of its queries. A bias that
// queries share is summed by each task for itself, and then over the tasks.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "keel/kernels/cpu/attention_shape.h"

namespace keel::cpu {

// Samples [batch_begin, batch_end) with key/value heads [head_begin, head_end).
struct BiasRound {
  std::int64_t batch_begin, batch_end, head_begin, head_end;
  std::int64_t pairs() const { return (batch_end - batch_begin) * (head_end - head_begin); }
  // The n-th sample and key/value head.
  std::pair<std::int64_t, std::int64_t> pair(std::int64_t n) const {
    const std::int64_t heads = head_end - head_begin;
    return {batch_begin + n / heads, head_begin + n % heads};
  }
};

// Where the rows of one head go; false where nobody wants them.
template <class Sum>
struct BiasTarget {
  Sum* data = nullptr;
  std::int64_t query_stride = 0;
  explicit operator bool() const { return data != nullptr; }
  // Adds a row's n numbers from key `first` on.
  void add(std::int64_t query, std::int64_t first, std::int64_t n, const Sum* row) const {
    Sum* to = data + query * query_stride + first;
    for (std::int64_t j = 0; j < n; ++j) to[j] += row[j];
  }
};

template <class Sum>
class BiasSums {
 public:
  explicit BiasSums(const AttentionBackwardArgs& args)
      : batch_(args.forward.q.dim(0)),
        kv_heads_(args.forward.k.dim(1)),
        group_(args.forward.q.dim(1) / kv_heads_),
        keys_(args.forward.k.dim(2)) {
    if (!args.needs_grad_bias) return;
    const Tensor& gradient = args.grad_bias;
    data_ = gradient.data<Sum>();
    count_ = gradient.numel();
    const bool queries_share = gradient.dim(2) == 1;
    batch_stride_ = gradient.dim(0) == 1 ? 0 : gradient.stride(0);
    head_stride_ = gradient.dim(1) == 1 ? 0 : gradient.stride(1);
    query_stride_ = queries_share ? 0 : gradient.stride(2);
    if (queries_share) partial_heads_ = head_stride_ == 0 ? 1 : group_;
    round_batch_ = batch_stride_ == 0 && !queries_share;
    round_heads_ = head_stride_ == 0 && !queries_share;
  }

  Dealing dealing() const {
    return {(round_batch_ ? 1 : batch_) * (round_heads_ ? 1 : kv_heads_), round_heads_ && group_ > 1};
  }
  std::int64_t rounds() const { return (round_batch_ ? batch_ : 1) * (round_heads_ ? kv_heads_ : 1); }
  BiasRound pairs(std::int64_t round) const {
    const std::int64_t b = round_heads_ ? round / kv_heads_ : round, head = round_heads_ ? round % kv_heads_ : 0;
    return {round_batch_ ? b : 0, round_batch_ ? b + 1 : batch_, head, round_heads_ ? head + 1 : kv_heads_};
  }

  void clear() const { std::fill(data_, data_ + count_, Sum(0)); }
  // Numbers that each task sums for itself.
  std::int64_t partial_count() const { return partial_heads_ * keys_; }
  // `partial`: of the task.
  BiasTarget<Sum> rows(Sum* partial, std::int64_t b, std::int64_t head) const {
    if (data_ == nullptr) return {};
    if (partial_heads_ != 0) return {partial + head % partial_heads_ * keys_, 0};
    return {data_ + b * batch_stride_ + head * head_stride_, query_stride_};
  }
  void join(std::int64_t b, std::int64_t kv_head, const Sum* partial) const {
    for (std::int64_t h = 0; h < partial_heads_; ++h) {
      Sum* to = data_ + b * batch_stride_ + (kv_head * group_ + h) * head_stride_;
      for (std::int64_t j = 0; j < keys_; ++j) to[j] += partial[h * keys_ + j];
    }
  }

 private:
  std::int64_t batch_, kv_heads_, group_, keys_;
  Sum* data_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t batch_stride_ = 0, head_stride_ = 0, query_stride_ = 0;
  std::int64_t partial_heads_ = 0;                  // of a task, where queries share the bias
  bool round_batch_ = false, round_heads_ = false;  // whether samples or heads come one after another
};

}  // namespace keel::cpu
