#include "keel/trainer/precision.h"

#include <fmt/format.h>

#include <algorithm>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

constexpr double kProbeSeconds = 0.05;
constexpr std::int64_t kProbeRows = 256;

// Products x (rows, width) times w (width, 4 width) in one number type, and the best rate seen, in GFLOP/s.
class Products {
 public:
  Products(const Context& context, DType dtype, std::int64_t width)
      : x_(zeros(context, {kProbeRows, width}, dtype, Purpose::workspace)),
        w_(zeros(context, {width, 4 * width}, dtype, Purpose::workspace)),
        out_(empty(context, {kProbeRows, 4 * width}, dtype, Purpose::workspace)),
        operations_(2.0 * kProbeRows * static_cast<double>(width * 4 * width)) {
    kernels::matmul(x_, w_, {.into = out_});  // warms up
    out_.context().synchronize();
  }
  void run() {
    const double start = seconds_now();
    kernels::matmul(x_, w_, {.into = out_});
    out_.context().synchronize();
    shortest_ = std::min(shortest_, seconds_now() - start);
  }
  double rate() const { return operations_ / shortest_ * 1e-9; }

 private:
  Tensor x_, w_, out_;
  double operations_;
  double shortest_ = 1e9;  // seconds
};

}  // namespace

PrecisionChoice choose_precision(const Context& context, std::int64_t width) {
  if (context.device().type == DeviceType::emulated)
    return {Strategy::Precision::fp32, "strategy auto: fp32; an emulated device has no speed to compare"};
  const std::int64_t probed = std::clamp<std::int64_t>(width, 64, 1024);
  Products wide(context, DType::f32, probed), narrow(context, DType::bf16, probed);
  // In turns: what else the machine does meets both alike.
  for (const double begin = seconds_now(); seconds_now() - begin < kProbeSeconds;) {
    wide.run();
    narrow.run();
  }
  const bool faster = narrow.rate() >= 1.25 * wide.rate();
  return {faster ? Strategy::Precision::bf16 : Strategy::Precision::fp32,
          fmt::format("strategy auto: {}; {} multiplies {:.0f} GFLOP/s in bf16 and {:.0f} in fp32",
                      faster ? "bf16" : "fp32",
                      context.device().type == DeviceType::cpu ? "this processor" : to_string(context.device()),
                      narrow.rate(), wide.rate())};
}

}  // namespace keel
