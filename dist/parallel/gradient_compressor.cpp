#include "keel/dist/parallel/gradient_compressor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

GradientCompressor::GradientCompressor(const FlatBuffer& layout, const Context& context, Communicator& ranks,
                                       const Options& options)
    : context_(context),
      ranks_(ranks),
      options_(options),
      padded_(layout.padded),
      numel_(layout.numel),
      owned_(options.whole ? Span{0, layout.padded} : part({0, layout.padded}, ranks.size(), ranks.rank())),
      kept_(zeros(context, {layout.padded}, DType::f32, Purpose::gradient)),
      pending_(zeros(context, {layout.padded}, DType::f32, Purpose::gradient)) {}

void GradientCompressor::wait() {
  const double began = milliseconds_now();
  std::exchange(work_, {}).wait();
  waited_ms_ += milliseconds_now() - began;
}

template <class F>
void GradientCompressor::timed(const F& f) {
  const double began = milliseconds_now(), waited = waited_ms_;
  f();
  codec_ms_ += milliseconds_now() - began - (waited_ms_ - waited);
}

void GradientCompressor::begin(const Tensor& gradient, double scale) {
  timed([&] {
    scale_ = scale;
    if (!begun_) kernels::copy_into(pending_, kept_);
    if (scale != 1) kernels::scale(pending_, scale);
    kernels::accumulate(pending_, gradient);
    send(pending_);
    begun_ = more_is_due_ = true;
  });
}

void GradientCompressor::proceed() {
  if (!std::exchange(more_is_due_, false)) return;
  timed([&] {
    send_more(pending_);
    if (scale_ != 1) kernels::scale(pending_, 1 / scale_);
  });
}

Tensor GradientCompressor::finish() {
  proceed();
  Tensor sum;
  timed([&] { sum = receive(); });
  // Blocks of numbers reach into the padding, which stays zero whatever arrives.
  const std::int64_t padding = std::clamp(numel_, owned_.begin, owned_.end) - owned_.begin;
  if (padding < owned_.count()) kernels::fill(sum.slice(0, padding, owned_.count()), 0);
  return sum;
}

void GradientCompressor::end_step(bool taken) {
  if (!std::exchange(begun_, false) || !taken) return;
  std::swap(kept_, pending_);
  std::swap(kept_factors_, pending_factors_);
}

std::unique_ptr<GradientCompressor> make_gradient_compressor(const FlatBuffer& layout, const Context& context,
                                                             Communicator& ranks,
                                                             const GradientCompressor::Options& options) {
  if (context.device().type != DeviceType::cpu)
    throw Error(concat("gradient compression ", options.compression.kind().name, " is not offered on ",
                       context.device(), " yet; bf16 and fp16 are"),
                ErrorKind::unsupported);
  if (options.compression.type == Compression::Type::power_sgd)
    return make_power_sgd_compressor(layout, context, ranks, options);
  return make_payload_compressor(layout, context, ranks, options);
}

}  // namespace keel
