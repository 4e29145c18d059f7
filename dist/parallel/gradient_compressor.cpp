#include "keel/dist/parallel/gradient_compressor.h"

#include <algorithm>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

Tensor copy_of(const Tensor& x) {
  const Tensor copy = empty(x.context(), x.shape(), x.dtype(), Purpose::bucket);
  kernels::copy_into(copy, x);
  return copy;
}

}  // namespace

GradientCompressor::GradientCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks,
                                       const Options& options)
    : context_(context),
      ranks_(ranks),
      options_(options),
      layout_(layout),
      padded_(layout.padded),
      owned_(options.whole ? Span{0, layout.padded} : part({0, layout.padded}, ranks.size(), ranks.rank())),
      timer_(context),
      left_out_(zeros(context, {layout.padded}, DType::f32, Purpose::gradient)) {}

void GradientCompressor::wait() {
  timer_.stop();
  {
    const Stopwatch watch(waited_ms_);
    std::exchange(work_, {}).wait();
  }
  timer_.start();
}

void GradientCompressor::begin(const Tensor& gradient, double scale) {
  const WorkTimer::Scope timing(timer_);
  scale_ = scale;
  if (!std::exchange(begun_, true)) {
    left_out_before_ = copy_of(left_out_);
    if (factors_.defined()) factors_before_ = copy_of(factors_);
  }
  if (scale != 1) kernels::scale(left_out_, scale);
  kernels::accumulate(left_out_, gradient);
  send(left_out_);
  more_is_due_ = true;
}

void GradientCompressor::proceed() {
  if (!std::exchange(more_is_due_, false)) return;
  const WorkTimer::Scope timing(timer_);
  send_more(left_out_);
  if (scale_ != 1) kernels::scale(left_out_, 1 / scale_);
}

Tensor GradientCompressor::finish() {
  proceed();
  const WorkTimer::Scope timing(timer_);
  wait();
  const Tensor sum = add_up();
  // Blocks of numbers reach into gaps and padding, which stay zero whatever arrives.
  layout_.clear_gaps(owned_.begin, sum);
  return sum;
}

void GradientCompressor::end_step(bool taken) {
  if (!std::exchange(begun_, false)) return;
  if (!taken) {
    kernels::copy_into(left_out_, left_out_before_);
    if (factors_.defined()) kernels::copy_into(factors_, factors_before_);
  }
  left_out_before_ = factors_before_ = {};
}

std::unique_ptr<GradientCompressor> make_gradient_compressor(const FlatBuffer& layout, const Context& context,
                                                             Communicator& ranks,
                                                             const GradientCompressor::Options& options) {
  if (options.compression.type == Compression::Type::power_sgd)
    return make_power_sgd_compressor(layout, context, ranks, options);
  return make_payload_compressor(layout, context, ranks, options);
}

}  // namespace keel
