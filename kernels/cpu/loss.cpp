#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/softmax_row.h"

namespace keel::cpu {
namespace {

// One row of the loss, and of its gradient when `grad` is not null. With targets
// q = (1 - smoothing) onehot(target) + smoothing / classes the loss is sum_j q_j (lse - x_j),
// and its gradient softmax(x) - q. The gradient may overwrite the logits.
template <class T>
struct LossRow {
  using A = Accumulator<T>;
  std::int64_t classes;
  A smoothing;

  A operator()(const T* logits, std::int64_t target, T* grad, A* exps) const {
    const A at_target = widen(logits[target]);
    // Summed before the exponentials, which need the same scratch.
    const A total = smoothing == 0 ? A{0} : row_sum(widen_row(logits, classes, exps), classes);
    const auto [shift, sum] = grad == nullptr ? exponentials<Keep::sum_alone>(logits, classes, exps)
                                              : exponentials<Keep::row>(logits, classes, exps);
    const A lse_above_shift = math::log(sum);
    const A count = static_cast<A>(classes);
    A loss = lse_above_shift - (at_target - shift);
    if (smoothing != 0) loss = (1 - smoothing) * loss + smoothing * (lse_above_shift - (total / count - shift));
    if (grad == nullptr) return loss;
    const A factor = 1 / sum, uniform = smoothing / count;
    for (std::int64_t j = 0; j < classes; ++j) grad[j] = static_cast<T>(exps[j] * factor - uniform);
    grad[target] = static_cast<T>(exps[target] * factor - uniform - (1 - smoothing));
    return loss;
  }
};

// How many targets count; throws at the first that is neither a class nor the ignore index.
template <class Index>
std::int64_t count_targets(const CrossEntropyArgs& args) {
  const std::int64_t rows = args.logits.dim(0), classes = args.logits.dim(1);
  const Index* const targets = args.targets.data<Index>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool counts = targets[row] != args.ignore_index;
    KEEL_CHECK(!counts || (targets[row] >= 0 && targets[row] < classes), "cross_entropy: target ", targets[row],
               " of row ", row, " is neither a class in [0, ", classes, ") nor the ignore index ", args.ignore_index);
    count += counts;
  }
  return count;
}

// The mean over `count` rows, summed in row order.
template <class A>
A mean_loss(const Tensor& losses, std::int64_t count) {
  double total = 0;
  for (const A *loss = losses.data<A>(), *end = loss + losses.numel(); loss != end; ++loss) total += *loss;
  return static_cast<A>(count == 0 ? 0 : total / static_cast<double>(count));
}

template <class T, class Index>
void cross_entropy_rows(const CrossEntropyArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t rows = args.logits.dim(0), classes = args.logits.dim(1);
  const std::int64_t count = count_targets<Index>(args);
  *args.count.data<std::int64_t>() = count;
  const T* const logits = args.logits.data<T>();
  const Index* const targets = args.targets.data<Index>();
  A* const losses = args.losses.data<A>();
  T* const grads = args.grad_logits.defined() ? args.grad_logits.data<T>() : nullptr;
  const LossRow<T> loss_row{classes, static_cast<A>(args.label_smoothing)};
  const Context& context = args.logits.context();
  const bool whole_rows = grads != nullptr || args.label_smoothing != 0;
  parallel_for(context, rows, row_grain(classes), [&](std::int64_t begin, std::int64_t end) {
    const Workspace<A> exps(context, whole_rows ? classes : std::min(classes, kExpBlock));
    for (std::int64_t r = begin; r < end; ++r) {
      T* const grad = grads == nullptr ? nullptr : grads + r * classes;
      if (targets[r] == args.ignore_index) {
        losses[r] = 0;
        if (grad != nullptr) std::fill(grad, grad + classes, T(0));
      } else {
        losses[r] = loss_row(logits + r * classes, targets[r], grad, exps.data());
      }
    }
  });
  *args.loss.data<A>() = mean_loss<A>(args.losses, count);
}

void cross_entropy(const CrossEntropyArgs& args) {
  visit_floating(args.logits.dtype(), [&](auto value) {
    visit_index(args.targets.dtype(), [&](auto index) {
      cross_entropy_rows<typename decltype(value)::type, typename decltype(index)::type>(args);
    });
  });
}

}  // namespace

void add_cross_entropy(KernelTable& table) { table.cross_entropy = cross_entropy; }

}  // namespace keel::cpu
