#include <optional>

#include "keel/kernels/cpu/attention_options.h"
#include "keel/kernels/cpu/attention_rows.h"
#include "keel/kernels/cpu/attention_shape.h"
#include "keel/kernels/cpu/bias_sums.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/runtime/parallel.h"

// Probabilities are recomputed from the saved log-sum-exp, block by block (Dao 2023, algorithm 2):
//   P = exp(scale q k^T - lse), D_i = sum_d grad_out_id out_id, dS = P (grad_out v^T - D) scale,
//   grad_v = P^T grad_out, grad_q = dS k, grad_k = dS^T q.
// With dropout, the kept ones of P, divided by their share, take the place of P in grad_v, and those of grad_out v^T
// in dS. The gradient of a bias is dS / scale.
// One task owns a key/value head, so that its gradients are summed in the order of the blocks; where
// blocks are dealt to several tasks, each has its own sums, which are added in the order of the tasks.
namespace keel::cpu {
namespace {

template <class T>
class Backward {
 public:
  using Sum = Accumulator<T>;
  using Unit = UnitOf<T>;
  static constexpr bool kWeightsAreSums = std::is_same_v<Weight<T>, Sum>;

  explicit Backward(const AttentionBackwardArgs& args)
      : bias_sums_(args),
        shape_(args.forward, bias_sums_.dealing()),
        context_(args.forward.q.context()),
        q_(args.forward.q),
        k_(args.forward.k),
        v_(args.forward.v),
        out_(args.forward.out),
        grad_out_(args.grad_out),
        grad_q_(args.grad_q),
        grad_k_(args.grad_k),
        grad_v_(args.grad_v),
        lse_(args.forward.lse.data<Sum>()),
        bias_(args.forward.bias),
        dropout_(args.forward) {}

  void run() const {
    bias_sums_.clear();
    for (std::int64_t round = 0; round < bias_sums_.rounds(); ++round) run_round(bias_sums_.pairs(round));
  }

 private:
  // All pairs of a sample and a key/value head of a round, at the same time.
  void run_round(const BiasRound& round) const {
    const std::int64_t head_sums = 2 * shape_.keys * shape_.size;  // of grad_k, then of grad_v
    const std::int64_t tasks = round.pairs() * shape_.chunks;
    std::optional<Workspace<Sum>> partial;
    if (shape_.chunks > 1) partial.emplace(context_, tasks * head_sums);
    const Workspace<Sum> bias_partial(context_, tasks * bias_sums_.partial_count());
    parallel_for(context_, tasks, shape_.grain(5), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const auto [b, kv_head] = round.pair(task / shape_.chunks);
        Sum* bias_to = bias_partial.data() + task * bias_sums_.partial_count();
        if (partial) {
          run_task(b, kv_head, task % shape_.chunks, partial->data() + task * head_sums, bias_to);
        } else {
          const Workspace<Sum> sums(context_, head_sums);
          run_task(b, kv_head, 0, sums.data(), bias_to);
          write_sums(b, kv_head, sums.data());
        }
      }
    });
    for (std::int64_t task = 0; bias_sums_.partial_count() != 0 && task < tasks; ++task) {
      const auto [b, kv_head] = round.pair(task / shape_.chunks);
      bias_sums_.join(b, kv_head, bias_partial.data() + task * bias_sums_.partial_count());
    }
    if (!partial) return;
    const std::int64_t pair_sums = std::max<std::int64_t>(1, shape_.chunks * head_sums);
    const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / pair_sums);
    parallel_for(context_, round.pairs(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        Sum* sums = partial->data() + pair * shape_.chunks * head_sums;
        for (std::int64_t chunk = 1; chunk < shape_.chunks; ++chunk) {
          const Sum* more = sums + chunk * head_sums;
          for (std::int64_t i = 0; i < head_sums; ++i) sums[i] += more[i];
        }
        const auto [b, kv_head] = round.pair(pair);
        write_sums(b, kv_head, sums);
      }
    });
  }

  // Keys and values of one head, packed as right operands.
  struct Packed {
    Packed(const Backward& owner, std::int64_t b, std::int64_t kv_head)
        : Packed(owner, b, kv_head, owner.shape_.packed(b), owner.shape_.size) {}
    Packed(const Backward& owner, std::int64_t b, std::int64_t kv_head, const KeyRange& range, std::int64_t size)
        : begin(range.begin),
          key_units(owner.context_, packed_right_units<T>(size, range.count())),
          value_units(owner.context_, packed_right_units<T>(size, range.count())),
          key_row_units(owner.context_, packed_right_units<T>(range.count(), size)),
          keys{key_units.data(), size, range.count()},
          values{value_units.data(), size, range.count()},
          key_rows{key_row_units.data(), range.count(), size} {
      pack_right<T>(owner.k_.matrix(b, kv_head, begin).transposed(), keys);
      pack_right<T>(owner.v_.matrix(b, kv_head, begin).transposed(), values);
      pack_right<T>(owner.k_.matrix(b, kv_head, begin), key_rows);
    }
    std::int64_t begin;  // the first key
    Workspace<Unit> key_units, value_units, key_row_units;
    PackedRight<T> keys, values;  // (size, keys): transposed
    PackedRight<T> key_rows;      // (keys, size)
  };

  // What one block of queries needs, besides the keys and values.
  struct Scratch {
    explicit Scratch(const Backward& owner)
        : Scratch(owner.context_, owner.shape_.block_extent, owner.shape_.size, owner.shape_.width(),
                  owner.shape_.score_stride(), static_cast<bool>(owner.dropout_)) {}
    Scratch(const Context& context, std::int64_t rows, std::int64_t size, std::int64_t width, std::int64_t stride,
            bool drops)
        : probabilities(context, rows * stride),
          grad_scores(context, rows * stride),
          weights(context, kWeightsAreSums ? 0 : 2 * rows * stride),
          grad_q(context, rows * size),
          bits(context, drops ? width : 0),
          right(context, packed_right_units<T>(rows, size)),
          left(context, std::max({left_workspace_units<T>(rows, size), left_workspace_units<T>(rows, width),
                                  left_workspace_units<T>(width, rows)})) {}
    Workspace<Sum> probabilities, grad_scores;
    Workspace<Weight<T>> weights;  // of both, where they are not sums
    Workspace<Sum> grad_q;
    Workspace<std::uint16_t> bits;
    Workspace<Unit> right, left;
  };

  void run_task(std::int64_t b, std::int64_t kv_head, std::int64_t chunk, Sum* sums, Sum* bias_partial) const {
    std::fill(sums, sums + 2 * shape_.keys * shape_.size, Sum(0));
    std::fill(bias_partial, bias_partial + bias_sums_.partial_count(), Sum(0));
    const Packed packed(*this, b, kv_head);
    const Scratch scratch(*this);
    shape_.for_each_block(kv_head, chunk, [&](const QueryBlock& queries) {
      run_block(b, queries, packed, scratch, sums, bias_sums_.rows(bias_partial, b, queries.head));
    });
  }

  void run_block(std::int64_t b, const QueryBlock& queries, const Packed& packed, const Scratch& scratch, Sum* sums,
                 const BiasTarget<Sum>& bias_to) const {
    const std::int64_t rows = queries.rows(), size = shape_.size, stride = shape_.score_stride();
    const KeyRange columns = shape_.template columns<T>(b, queries);
    const std::int64_t seen = columns.count(), first = columns.begin - packed.begin;
    const MatrixView<T> q = q_.matrix(b, queries.head, queries.begin);
    const MatrixView<T> grad_out = grad_out_.matrix(b, queries.head, queries.begin);
    Sum *p = scratch.probabilities.data(), *ds = scratch.grad_scores.data();
    Unit* left = scratch.left.data();
    const auto scale = static_cast<Sum>(shape_.scale), whole = static_cast<Sum>(dropout_.scale());
    multiply_packed<T>(rows, seen, size, scale, q, packed.keys, false, p, stride, left, {.column = first});
    multiply_packed<T>(rows, seen, size, whole, grad_out, packed.values, false, ds, stride, left, {.column = first});
    Weight<T>*p_weights, *ds_weights;
    if constexpr (kWeightsAreSums) p_weights = p, ds_weights = ds;
    else p_weights = scratch.weights.data(), ds_weights = p_weights + shape_.block_extent * stride;
    // A bias needs dS / scale.
    const Sum in_rows = bias_to ? Sum(1) : scale, in_products = bias_to ? scale : Sum(1);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = i * stride, query = queries.begin + i;
      const KeyRange own = differentiate_row(b, queries.head, query, columns, in_rows, p + row, ds + row,
                                             p_weights + row, ds_weights + row, scratch.bits.data());
      if (bias_to) bias_to.add(query, columns.begin + own.begin, own.count(), ds + row + own.begin);
    }

    const MatrixView<Weight<T>> probabilities = {p_weights, stride, 1}, grad_scores = {ds_weights, stride, 1};
    multiply_packed<T>(rows, size, whole_units<T>(seen), in_products, grad_scores, packed.key_rows, false,
                       scratch.grad_q.data(), size, left, {.row = first});
    for (std::int64_t i = 0; i < rows; ++i) {
      T* to = grad_q_.row(b, queries.head, queries.begin + i);
      const Sum* from = scratch.grad_q.data() + i * size;
      for (std::int64_t d = 0; d < size; ++d) to[d] = T(from[d]);
    }
    const PackedRight<T> right = {scratch.right.data(), rows, size};
    Sum *k_sums = sums + columns.begin * size, *v_sums = k_sums + shape_.keys * size;
    pack_right<T>(q, right);
    multiply_packed<T>(seen, size, rows, in_products, grad_scores.transposed(), right, true, k_sums, size, left);
    pack_right<T>(grad_out, right);
    multiply_packed<T>(seen, size, rows, whole, probabilities.transposed(), right, true, v_sums, size, left);
  }

  // p: scores, ds: gradient of the probabilities, of the keys `columns`. The weights become the probabilities, zero
  // where dropped, and `scale` times the gradient of the scores, both zero where keys are hidden; ds becomes the
  // latter, too, where there is a bias. Returns the columns that the query sees.
  KeyRange differentiate_row(std::int64_t b, std::int64_t head, std::int64_t query, const KeyRange& columns, Sum scale,
                             Sum* p, Sum* ds, Weight<T>* p_weights, Weight<T>* ds_weights, std::uint16_t* bits) const {
    constexpr Sum kHidden = -std::numeric_limits<Sum>::infinity();
    const Sum lse = lse_[(b * shape_.heads + head) * shape_.queries + query];
    const Sum delta = dot<Sum>(grad_out_.row(b, head, query), out_.row(b, head, query), shape_.size);
    using W = Weight<T>;
    constexpr int kVectors = static_cast<int>(kRowStep<W>) / kLanes<Sum>;
    KeyRange seen = shape_.seen(b, query).from(columns.begin);
    if (bias_) {
      if (lse == kHidden) seen = {0, 0};
      bias_.add_to(p + seen.begin, b, head, query, columns.begin + seen.begin, seen.count());
    }
    begin_row(p, seen.begin, kHidden);
    finish_row<W>(p, seen.end, kHidden);
    finish_row<W>(ds, seen.end, Sum(0));
    if (dropout_ && seen.end != 0) {
      dropout_.draw(b, head, query, columns.begin, seen.end, bits);
      dropout_.drop(bits, seen.end, ds);
    }
    for (std::int64_t j = 0; j < padded<W>(seen.end); j += kRowStep<W>) {
      for (int l = 0; l < kRowStep<W>; ++l) p[j + l] = math::exp(p[j + l] - lse);
      Vector<Sum> probabilities[kVectors], gradients[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        probabilities[v] = load_vector<Sum>(p + j + v * kLanes<Sum>);
        gradients[v] = probabilities[v] * (load_vector<Sum>(ds + j + v * kLanes<Sum>) - delta) * scale;
      }
      store_weights<Sum>(probabilities, p_weights + j);
      store_weights<Sum>(gradients, ds_weights + j);
    }
    if (!kWeightsAreSums && bias_)
      for (std::int64_t j = seen.begin; j < seen.end; ++j) ds[j] = p[j] * (ds[j] - delta) * scale;
    if (dropout_ && seen.end != 0) dropout_.drop(bits, seen.end, p_weights);
    clear_weights(p_weights, padded<W>(seen.end), columns.count());
    clear_weights(ds_weights, padded<W>(seen.end), columns.count());
    return seen;
  }

  void write_sums(std::int64_t b, std::int64_t kv_head, const Sum* sums) const {
    for (const Heads<T>* gradient : {&grad_k_, &grad_v_}) {
      for (std::int64_t j = 0; j < shape_.keys; ++j, sums += shape_.size) {
        T* to = gradient->row(b, kv_head, j);
        for (std::int64_t d = 0; d < shape_.size; ++d) to[d] = T(sums[d]);
      }
    }
  }

  BiasSums<Sum> bias_sums_;
  AttentionShape shape_;
  const Context& context_;
  Heads<T> q_, k_, v_, out_, grad_out_, grad_q_, grad_k_, grad_v_;
  const Sum* lse_;
  BiasRows<T> bias_;
  WeightDropout dropout_;
};

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  visit_floating(args.forward.q.dtype(), [&](auto tag) { Backward<typename decltype(tag)::type>(args).run(); });
}

}  // namespace keel::cpu
