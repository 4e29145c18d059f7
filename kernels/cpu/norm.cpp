#include <cmath>
#include <utility>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"

namespace keel::cpu {
namespace {

template <class A>
struct Moments {
  A mean;  // 0 for rms
  A rstd;  // 1 / sqrt(variance + epsilon), about `mean`
};

// The variance is summed about the mean, not as a difference of large numbers.
template <class A, class X>
Moments<A> moments(NormKind kind, const X* x, std::int64_t cols, A epsilon) {
  const A count = static_cast<A>(cols);
  const A mean = kind == NormKind::layer ? row_sum<A>(cols, [&](auto at) { return at(x); }) / count : A{0};
  const A squares = row_sum<A>(cols, [&](auto at) {
    const auto distance = at(x) - mean;
    return distance * distance;
  });
  return {mean, 1 / std::sqrt(squares / count + epsilon)};
}

// x + residual, rounded to T before it is normalised: the same bits as an addition of its own.
template <class T>
const T* add_residual(const T* x, const T* residual, std::int64_t cols, T* sum) {
  for (std::int64_t j = 0; j < cols; ++j) sum[j] = static_cast<T>(widen(x[j]) + widen(residual[j]));
  return sum;
}

template <class T>
void norm_rows(const NormArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  const Context& context = args.x.context();
  const T* const x = args.x.data<T>();
  const T* const residual = args.residual.defined() ? args.residual.data<T>() : nullptr;
  T* const sum = args.residual.defined() ? args.sum.data<T>() : nullptr;
  T* const out = args.out.data<T>();
  A* const means = args.kind == NormKind::layer ? args.mean.data<A>() : nullptr;
  A* const rstds = args.rstd.data<A>();
  parallel_for(context, rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
    const Workspace<Readable<T>> wide(context, readable_count<T>(cols));
    const Workspace<A> wide_weight(context, wide_count<T>(cols)), wide_bias(context, wide_count<T>(cols));
    const A* const weight = widen_row(args.weight.data<T>(), cols, wide_weight.data());
    const A* const bias = args.bias.defined() ? widen_row(args.bias.data<T>(), cols, wide_bias.data()) : nullptr;
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * cols;
      const T* const normalised = residual == nullptr ? x + at : add_residual(x + at, residual + at, cols, sum + at);
      const Readable<T>* const row = readable_row(normalised, cols, wide.data());
      const auto [mean, rstd] = moments(args.kind, row, cols, static_cast<A>(args.epsilon));
      if (means != nullptr) means[r] = mean;
      rstds[r] = rstd;
      T* const to = out + at;
      const A centre = mean, factor = rstd;
      if (bias != nullptr)
        for (std::int64_t j = 0; j < cols; ++j)
          to[j] = static_cast<T>((widen(row[j]) - centre) * factor * weight[j] + bias[j]);
      else
        for (std::int64_t j = 0; j < cols; ++j) to[j] = static_cast<T>((widen(row[j]) - centre) * factor * weight[j]);
    }
  });
}

// Partial column sums of a chunk of rows: of grad_output * x_hat, and of grad_output.
template <class A>
struct ColumnSums {
  A* weight;  // null when the weight has no gradient; likewise bias
  A* bias;
};

// With g = grad_output * weight and x_hat = (x - mean) rstd:
//   grad_x = rstd (g - mean(g) - x_hat mean(g x_hat)), where rms norm has no mean(g).
template <class T>
class BackwardRow {
 public:
  using A = Accumulator<T>;
  using R = Readable<T>;

  explicit BackwardRow(const NormBackwardArgs& args)
      : args_(args),
        cols_(args.x.dim(1)),
        wide_weight_(args.x.context(), wide_count<T>(cols_)),
        wide_grad_(args.x.context(), readable_count<T>(cols_)),
        wide_x_(args.x.context(), readable_count<T>(cols_)),
        weight_(widen_row(args.weight.data<T>(), cols_, wide_weight_.data())) {}

  // One pass over memory makes all sums; the second finds the row in the first cache.
  void operator()(std::int64_t r, const ColumnSums<A>& columns) const {
    const std::int64_t at = r * cols_;
    const R* const grad = readable_row(args_.grad_output.data<T>() + at, cols_, wide_grad_.data());
    const R* const x = readable_row(args_.x.data<T>() + at, cols_, wide_x_.data());
    const A* const weight = weight_;
    const A mean = args_.kind == NormKind::layer ? args_.mean.data<A>()[r] : A{0};
    const A rstd = args_.rstd.data<A>()[r], count = static_cast<A>(cols_);
    const auto [sum, dot] = row_sums<A>(cols_, [&](auto lanes) {
      const auto distance = lanes(x) - mean;
      if (columns.weight != nullptr) lanes.add(columns.weight, lanes(grad) * (distance * rstd));
      if (columns.bias != nullptr) lanes.add(columns.bias, lanes(grad));
      const auto g = lanes(grad) * lanes(weight);
      return std::pair{g, g * distance};
    });
    const A mean_grad = args_.kind == NormKind::rms ? A{0} : sum / count;
    const A slope = rstd * rstd * dot / count;  // x_hat mean(g x_hat) = (x - mean) slope
    const auto value = [=](std::int64_t j) {
      return rstd * (widen(grad[j]) * weight[j] - mean_grad - (widen(x[j]) - mean) * slope);
    };
    T* const grad_x = args_.grad_x.data<T>() + at;
    if (args_.grad_sum.defined()) {
      const T* const grad_sum = args_.grad_sum.data<T>() + at;
      for (std::int64_t j = 0; j < cols_; ++j) grad_x[j] = static_cast<T>(value(j) + widen(grad_sum[j]));
    } else {
      for (std::int64_t j = 0; j < cols_; ++j) grad_x[j] = static_cast<T>(value(j));
    }
  }

 private:
  const NormBackwardArgs& args_;
  std::int64_t cols_;
  Workspace<A> wide_weight_;
  Workspace<R> wide_grad_, wide_x_;
  const A* weight_;
};

// destination (+)= the partial sums of each chunk, in chunk order. partials: (chunks, cols).
template <class A>
void add_partials(const A* partials, std::int64_t chunks, std::int64_t cols, const Tensor& destination, bool add) {
  const Context& context = destination.context();
  visit_floating(destination.dtype(), [&](auto tag) {
    using D = typename decltype(tag)::type;
    D* const to = destination.data<D>();
    parallel_for(context, cols, row_grain(chunks), [&](std::int64_t begin, std::int64_t end) {
      const Workspace<A> totals(context, end - begin);
      A* const total = totals.data();
      for (std::int64_t j = begin; j < end; ++j) total[j - begin] = add ? static_cast<A>(widen(to[j])) : A{0};
      for (std::int64_t c = 0; c < chunks; ++c)
        for (std::int64_t j = begin; j < end; ++j) total[j - begin] += partials[c * cols + j];
      for (std::int64_t j = begin; j < end; ++j) to[j] = static_cast<D>(total[j - begin]);
    });
  });
}

// Chunks of the column sums are at most this many, so that their partials stay small.
constexpr std::int64_t kMaxChunks = 64;

template <class T>
void norm_backward_rows(const NormBackwardArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  const Context& context = args.x.context();
  const std::int64_t grain = std::max(row_grain(cols), (rows + kMaxChunks - 1) / kMaxChunks);
  const std::int64_t chunks = (rows + grain - 1) / grain;
  const Workspace<A> weight_sums(context, args.grad_weight.defined() ? chunks * cols : 0);
  const Workspace<A> bias_sums(context, args.grad_bias.defined() ? chunks * cols : 0);
  parallel_for(context, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin / grain * cols;
    const ColumnSums<A> sums{args.grad_weight.defined() ? weight_sums.data() + at : nullptr,
                             args.grad_bias.defined() ? bias_sums.data() + at : nullptr};
    for (A* const partial : {sums.weight, sums.bias})
      if (partial != nullptr) std::fill(partial, partial + cols, A{0});
    const BackwardRow<T> backward_row(args);
    for (std::int64_t r = begin; r < end; ++r) backward_row(r, sums);
  });
  if (args.grad_weight.defined()) add_partials(weight_sums.data(), chunks, cols, args.grad_weight, args.add_weight);
  if (args.grad_bias.defined()) add_partials(bias_sums.data(), chunks, cols, args.grad_bias, args.add_bias);
}

void norm(const NormArgs& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { norm_rows<typename decltype(tag)::type>(args); });
}

void norm_backward(const NormBackwardArgs& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { norm_backward_rows<typename decltype(tag)::type>(args); });
}

}  // namespace

void add_norm(KernelTable& table) {
  table.norm = norm;
  table.norm_backward = norm_backward;
}

}  // namespace keel::cpu
