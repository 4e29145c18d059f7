#include <optional>

#include "keel/kernels/cpu/attention_rows.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/runtime/parallel.h"

// Probabilities are recomputed from the saved log-sum-exp, block by block (Dao 2023, algorithm 2):
//   P = exp(scale q k^T - lse), D_i = sum_d grad_out_id out_id, dS = P (grad_out v^T - D) scale,
//   grad_v = P^T grad_out, grad_q = dS k, grad_k = dS^T q.
// One task owns a key/value head, so that its gradients are summed in the order of the blocks; where
// blocks are dealt to several tasks, each has its own sums, which are added in the order of the tasks.
namespace keel::cpu {
namespace {

template <class T>
class Backward {
 public:
  using Sum = Accumulator<T>;
  using Unit = UnitOf<T>;

  explicit Backward(const AttentionBackwardArgs& args)
      : shape_(args.forward),
        context_(args.forward.q.context()),
        q_(args.forward.q),
        k_(args.forward.k),
        v_(args.forward.v),
        out_(args.forward.out),
        grad_out_(args.grad_out),
        grad_q_(args.grad_q),
        grad_k_(args.grad_k),
        grad_v_(args.grad_v),
        lse_(args.forward.lse.data<Sum>()) {}

  void run() const {
    const std::int64_t pairs = shape_.batch * shape_.kv_heads;
    const std::int64_t head_sums = 2 * shape_.keys * shape_.size;  // of grad_k, then of grad_v
    std::optional<Workspace<Sum>> partial;
    if (shape_.chunks > 1) partial.emplace(context_, shape_.tasks() * head_sums);
    parallel_for(context_, shape_.tasks(), shape_.grain(5), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t pair = task / shape_.chunks;
        if (partial) {
          run_task(pair, task % shape_.chunks, partial->data() + task * head_sums);
        } else {
          const Workspace<Sum> sums(context_, head_sums);
          run_task(pair, 0, sums.data());
          write_sums(pair, sums.data());
        }
      }
    });
    if (!partial) return;
    const std::int64_t pair_sums = std::max<std::int64_t>(1, shape_.chunks * head_sums);
    const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / pair_sums);
    parallel_for(context_, pairs, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        Sum* sums = partial->data() + pair * shape_.chunks * head_sums;
        for (std::int64_t chunk = 1; chunk < shape_.chunks; ++chunk) {
          const Sum* more = sums + chunk * head_sums;
          for (std::int64_t i = 0; i < head_sums; ++i) sums[i] += more[i];
        }
        write_sums(pair, sums);
      }
    });
  }

 private:
  // Keys and values of one head, packed as right operands.
  struct Packed {
    Packed(const Backward& owner, std::int64_t b, std::int64_t kv_head, std::int64_t limit)
        : key_units(owner.context_, packed_right_units<T>(owner.shape_.size, limit)),
          value_units(owner.context_, packed_right_units<T>(owner.shape_.size, limit)),
          key_row_units(owner.context_, packed_right_units<T>(limit, owner.shape_.size)),
          keys{key_units.data(), owner.shape_.size, limit},
          values{value_units.data(), owner.shape_.size, limit},
          key_rows{key_row_units.data(), limit, owner.shape_.size} {
      pack_right<T>(owner.k_.matrix(b, kv_head).transposed(), keys);
      pack_right<T>(owner.v_.matrix(b, kv_head).transposed(), values);
      pack_right<T>(owner.k_.matrix(b, kv_head), key_rows);
    }
    Workspace<Unit> key_units, value_units, key_row_units;
    PackedRight<T> keys, values;  // (size, limit): transposed
    PackedRight<T> key_rows;      // (limit, size)
  };

  // What one block of queries needs, besides the keys and values.
  struct Scratch {
    Scratch(const Backward& owner, std::int64_t limit)
        : probabilities(owner.context_, owner.shape_.block_extent * owner.shape_.score_stride()),
          grad_scores(owner.context_, owner.shape_.block_extent * owner.shape_.score_stride()),
          weights(owner.context_,
                  std::is_same_v<Weight<T>, Sum> ? 0 : 2 * owner.shape_.block_extent * owner.shape_.score_stride()),
          grad_q(owner.context_, owner.shape_.block_extent * owner.shape_.size),
          right(owner.context_, packed_right_units<T>(owner.shape_.block_extent, owner.shape_.size)),
          left(owner.context_, std::max({left_workspace_units<T>(owner.shape_.block_extent, owner.shape_.size),
                                         left_workspace_units<T>(owner.shape_.block_extent, limit),
                                         left_workspace_units<T>(limit, owner.shape_.block_extent)})) {}
    Workspace<Sum> probabilities, grad_scores;
    Workspace<Weight<T>> weights;  // of both, where they are not sums
    Workspace<Sum> grad_q;
    Workspace<Unit> right, left;
  };

  void run_task(std::int64_t pair, std::int64_t chunk, Sum* sums) const {
    const std::int64_t b = pair / shape_.kv_heads, kv_head = pair % shape_.kv_heads;
    const std::int64_t limit = shape_.key_limit(b);
    std::fill(sums, sums + 2 * shape_.keys * shape_.size, Sum(0));
    const Packed packed(*this, b, kv_head, limit);
    const Scratch scratch(*this, limit);
    for (std::int64_t block = chunk; block < shape_.blocks; block += shape_.chunks)
      run_block(b, query_block(shape_, kv_head, block), packed, scratch, sums);
  }

  void run_block(std::int64_t b, const QueryBlock& queries, const Packed& packed, const Scratch& scratch,
                 Sum* sums) const {
    const std::int64_t rows = queries.rows(), size = shape_.size, stride = shape_.score_stride();
    const std::int64_t seen = shape_.visible(b, queries.end - 1);
    const MatrixView<T> q = q_.matrix(b, queries.head, queries.begin);
    const MatrixView<T> grad_out = grad_out_.matrix(b, queries.head, queries.begin);
    Sum *p = scratch.probabilities.data(), *ds = scratch.grad_scores.data();
    Unit* left = scratch.left.data();
    multiply_packed<T>(rows, seen, size, static_cast<Sum>(shape_.scale), q, packed.keys, false, p, stride, left);
    multiply_packed<T>(rows, seen, size, Sum(1), grad_out, packed.values, false, ds, stride, left);
    Weight<T>*p_weights, *ds_weights;
    if constexpr (std::is_same_v<Weight<T>, Sum>) p_weights = p, ds_weights = ds;
    else p_weights = scratch.weights.data(), ds_weights = p_weights + shape_.block_extent * stride;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = i * stride;
      differentiate_row(b, queries.head, queries.begin + i, seen, p + row, ds + row, p_weights + row, ds_weights + row);
    }

    const MatrixView<Weight<T>> probabilities = {p_weights, stride, 1}, grad_scores = {ds_weights, stride, 1};
    multiply_packed<T>(rows, size, whole_units<T>(seen), Sum(1), grad_scores, packed.key_rows, false,
                       scratch.grad_q.data(), size, left);
    for (std::int64_t i = 0; i < rows; ++i) {
      T* to = grad_q_.row(b, queries.head, queries.begin + i);
      const Sum* from = scratch.grad_q.data() + i * size;
      for (std::int64_t d = 0; d < size; ++d) to[d] = T(from[d]);
    }
    const PackedRight<T> right = {scratch.right.data(), rows, size};
    pack_right<T>(q, right);
    multiply_packed<T>(seen, size, rows, Sum(1), grad_scores.transposed(), right, true, sums, size, left);
    pack_right<T>(grad_out, right);
    multiply_packed<T>(seen, size, rows, Sum(1), probabilities.transposed(), right, true, sums + shape_.keys * size,
                       size, left);
  }

  // p: scores, ds: gradient of the probabilities. The weights become the probabilities and the gradient of
  // the scores, zero where keys are hidden.
  void differentiate_row(std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t end, Sum* p, Sum* ds,
                         Weight<T>* p_weights, Weight<T>* ds_weights) const {
    const std::int64_t seen = shape_.visible(b, query);
    const Sum lse = lse_[(b * shape_.heads + head) * shape_.queries + query];
    const Sum delta = dot<Sum>(grad_out_.row(b, head, query), out_.row(b, head, query), shape_.size);
    const Sum scale = static_cast<Sum>(shape_.scale);
    using W = Weight<T>;
    constexpr int kVectors = static_cast<int>(kRowStep<W>) / kLanes<Sum>;
    finish_row<W>(p, seen, -std::numeric_limits<Sum>::infinity());
    finish_row<W>(ds, seen, Sum(0));
    for (std::int64_t j = 0; j < padded<W>(seen); j += kRowStep<W>) {
      for (int l = 0; l < kRowStep<W>; ++l) p[j + l] = math::exp(p[j + l] - lse);
      Vector<Sum> probabilities[kVectors], gradients[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        probabilities[v] = load_vector<Sum>(p + j + v * kLanes<Sum>);
        gradients[v] = probabilities[v] * (load_vector<Sum>(ds + j + v * kLanes<Sum>) - delta) * scale;
      }
      store_weights<Sum>(probabilities, p_weights + j);
      store_weights<Sum>(gradients, ds_weights + j);
    }
    clear_weights(p_weights, padded<W>(seen), end);
    clear_weights(ds_weights, padded<W>(seen), end);
  }

  void write_sums(std::int64_t pair, const Sum* sums) const {
    const std::int64_t b = pair / shape_.kv_heads, kv_head = pair % shape_.kv_heads;
    for (const Heads<T>* gradient : {&grad_k_, &grad_v_}) {
      for (std::int64_t j = 0; j < shape_.keys; ++j, sums += shape_.size) {
        T* to = gradient->row(b, kv_head, j);
        for (std::int64_t d = 0; d < shape_.size; ++d) to[d] = T(sums[d]);
      }
    }
  }

  AttentionShape shape_;
  const Context& context_;
  Heads<T> q_, k_, v_, out_, grad_out_, grad_q_, grad_k_, grad_v_;
  const Sum* lse_;
};

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  visit_floating(args.forward.q.dtype(), [&](auto tag) { Backward<typename decltype(tag)::type>(args).run(); });
}

}  // namespace keel::cpu
