#include "keel/dist/strategies/error_feedback.h"

#include <utility>

#include "keel/kernels/elementwise.h"

namespace keel {

ErrorFeedback::ErrorFeedback(const Context& context, std::int64_t count, Purpose purpose)
    : states_{zeros(context, {count}, DType::f32, purpose)} {}

void ErrorFeedback::begin_step() {
  if (!before_.empty()) return;
  for (const Tensor& state : states_) {
    before_.push_back(empty(state.context(), state.shape(), state.dtype(), Purpose::bucket));
    kernels::copy_into(before_.back(), state);
  }
}

const Tensor& ErrorFeedback::add(const Tensor& gradient, double scale, double decay) {
  scale_ = scale;
  begin_step();
  if (scale * decay != 1) kernels::scale(residual(), scale * decay);
  kernels::accumulate(residual(), gradient);
  return residual();
}

void ErrorFeedback::settle() {
  if (const double scale = std::exchange(scale_, 1); scale != 1) kernels::scale(residual(), 1 / scale);
}

void ErrorFeedback::end_step(bool taken) {
  const std::vector<Tensor> before = std::exchange(before_, {});
  for (std::size_t i = 0; i < before.size() && !taken; ++i) kernels::copy_into(states_[i], before[i]);
}

}  // namespace keel
