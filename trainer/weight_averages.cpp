#include "keel/trainer/weight_averages.h"

#include <algorithm>
#include <optional>
#include <span>

#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Calls f(numbers, span of them): of weights that lie in a file piece by piece, so that no page of theirs comes whole.
template <class F>
void for_each_piece(const Tensor& weights, const F& f) {
  if (weights.storage()->elsewhere() == nullptr) return f(weights.flatten(), {0, weights.numel()});
  std::int64_t begin = 0;
  read_once(weights, [&](std::span<const std::byte> bytes) {
    const auto count = static_cast<std::int64_t>(bytes.size() / size_of(weights.dtype()));
    const Tensor piece =
        from_external(weights.context().host(), const_cast<std::byte*>(bytes.data()), {count}, {1}, weights.dtype());
    f(kernels::to(piece, weights.context()), {begin, begin + count});
    weights.context().synchronize();  // its memory goes
    begin += count;
  });
}

Tensor cut(const Tensor& numbers, Span among) { return numbers.flatten().slice(0, among.begin, among.end); }

// The same parts with memory of their own; without a dtype, in that of each.
TensorParts copies_of(const TensorParts& parts, std::optional<DType> dtype, Purpose purpose) {
  TensorParts copies = parts;
  for (TensorPart& each : copies) {
    if (!each.values.defined()) continue;
    const Tensor copy = empty(each.values.context(), each.values.shape(), dtype.value_or(each.values.dtype()), purpose);
    for_each_piece(each.values, [&](const Tensor& piece, Span among) { kernels::copy_into(cut(copy, among), piece); });
    each.values = copy;
  }
  return copies;
}

void copy_all(const TensorParts& from, const TensorParts& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i].numel() > 0) kernels::copy_into(to[i].values, from[i].values);
}

}  // namespace

void WeightAverage::fit_begin(LoopView& view) {
  average_ = copies_of(view.engine().weights(), DType::f32, Purpose::optimizer);
}

void WeightAverage::move(LoopView& view, double factor, const Tensor& device_factor) {
  view.engine().wait_until_released();
  const TensorParts weights = view.engine().weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].numel() == 0) continue;
    for_each_piece(weights[i].values, [&](const Tensor& piece, Span among) {
      const Tensor average = cut(average_[i].values, among);
      const Tensor difference = kernels::binary<Sub>(kernels::cast(piece, DType::f32), average);
      kernels::scale(difference, factor);
      // An optimizer that works on the processor has the weights there.
      if (device_factor.defined()) kernels::scale_by(difference, kernels::to(device_factor, difference.context()));
      kernels::accumulate(average, difference);
    });
  }
}

void WeightAverage::evaluation_begin(LoopView& view) {
  if (!evaluates_ || !has_begun()) return;
  view.engine().wait_until_released();
  const TensorParts mine = view.engine().weights();
  // The weights to the bit, whatever their dtype.
  weights_ = copies_of(mine, {}, Purpose::activation);
  copy_all(average_, mine);
  view.engine().adopt_weights();
}

void WeightAverage::evaluation_end(LoopView& view, bool /*done*/) {
  if (weights_.empty()) return;
  copy_all(weights_, view.engine().weights());
  weights_.clear();
  view.engine().adopt_weights();
}

void ExponentialAverage::after_optimizer_step(LoopView& view) {
  const auto t = static_cast<double>(updates());
  const double decay = options_.warmup ? std::min(options_.decay, (1 + t) / (10 + t)) : options_.decay;
  move(view, 1 - decay, kernels::cast(view.taken(), DType::f32));
  count_update();
}

void StochasticAverage::step_begin(LoopView& view) {
  if (options_.rate_factor != 1 && view.state().step == start_) view.set_rate_factor(options_.rate_factor);
}

// Weights that a skipped step has left as they were count as those of that step.
void StochasticAverage::after_optimizer_step(LoopView& view) {
  const std::int64_t since = view.state().step - start_;
  if (since < 0 || (since > 0 && !options_.every.is_due(since))) return;
  count_update();
  move(view, 1.0 / static_cast<double>(updates()));
}

}  // namespace keel
