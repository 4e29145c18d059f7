#include "keel/trainer/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"

namespace keel {
namespace {

constexpr double kProbeSeconds = 0.02;  // for each number type, after a first product that warms up
constexpr std::int64_t kRows = 256;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best rate of the products x (rows, width) times w (width, 4 width) within the time, in GFLOP/s.
double matmul_rate(const Context& context, DType dtype, std::int64_t width) {
  const Tensor x = zeros(context, {kRows, width}, dtype, Purpose::workspace);
  const Tensor w = zeros(context, {width, 4 * width}, dtype, Purpose::workspace);
  const Tensor out = empty(context, {kRows, 4 * width}, dtype, Purpose::workspace);
  kernels::matmul(x, w, {.into = out});
  double shortest = 1e9;
  for (const double begin = seconds_now(); seconds_now() - begin < kProbeSeconds;) {
    const double start = seconds_now();
    kernels::matmul(x, w, {.into = out});
    shortest = std::min(shortest, seconds_now() - start);
  }
  return 2.0 * kRows * static_cast<double>(width * 4 * width) / shortest * 1e-9;
}

}  // namespace

PrecisionChoice choose_precision(const Context& context, std::int64_t width) {
  const std::int64_t probed = std::clamp<std::int64_t>(width, 64, 1024);
  const double fp32 = matmul_rate(context, DType::f32, probed), bf16 = matmul_rate(context, DType::bf16, probed);
  const bool narrow = bf16 >= 1.25 * fp32;
  return {narrow ? Strategy::Precision::bf16 : Strategy::Precision::fp32,
          fmt::format("strategy auto: {}; this processor multiplies {:.0f} GFLOP/s in bf16 and {:.0f} in fp32",
                      narrow ? "bf16" : "fp32", bf16, fp32)};
}

}  // namespace keel
