#include "keel/runtime/math.h"

#include <gtest/gtest.h>

#include <limits>

namespace keel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance in units of the last place of an fp32 near `exact` (2^-149 among the subnormals).
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : HUGE_VAL;
  if (const float rounded = static_cast<float>(exact); std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  if (!std::isfinite(got)) return HUGE_VAL;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// The largest error over bit patterns spread evenly through all floats, of every size, sign and kind.
template <class F, class G>
double worst_ulps(F f, G reference) {
  double worst = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099) {  // prime: meets all low bits
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    worst = std::fmax(worst, ulps(f(x), reference(static_cast<double>(x))));
  }
  return worst;
}
// And densely where the function is neither trivial nor saturated.
template <class F, class G>
double worst_ulps_between(double low, double high, F f, G reference) {
  double worst = 0;
  for (int i = 0; i <= 1000003; ++i) {
    const float x = static_cast<float>(low + (high - low) * i / 1000003);
    worst = std::fmax(worst, ulps(f(x), reference(static_cast<double>(x))));
  }
  return worst;
}

#define KEEL_EXPECT_ULPS(function, bound, low, high)                           \
  do {                                                                         \
    const auto ours = [](float x) { return math::function(x); };               \
    const auto exact = [](double x) { return std::function(x); };              \
    EXPECT_LE(worst_ulps(ours, exact), bound) << #function;                    \
    EXPECT_LE(worst_ulps_between(low, high, ours, exact), bound) << #function; \
  } while (false)

TEST(Math, ErrorsStayWithinTheBoundsThatTheHeaderStates) {
  KEEL_EXPECT_ULPS(exp, 1.1, -104, 89);
  KEEL_EXPECT_ULPS(expm1, 1.6, -18, 20);
  KEEL_EXPECT_ULPS(log, 1.0, 0.5, 2);
  KEEL_EXPECT_ULPS(log1p, 1.5, -0.99, 3);
  KEEL_EXPECT_ULPS(tanh, 2.7, -10, 10);
  KEEL_EXPECT_ULPS(erf, 1.2, -4.2, 4.2);
}

TEST(Math, SinesAndCosinesOfTurnsAreWithinTheStatedBound) {
  double worst = 0;
  for (int i = -(1 << 20); i < 1 << 20; i += 3) {
    const float u = static_cast<float>(i) * 0x1p-20f;
    const double angle = 2 * std::acos(-1.0) * static_cast<double>(u);
    worst = std::fmax(worst, std::fabs(math::sin_2pi(u) - std::sin(angle)));
    worst = std::fmax(worst, std::fabs(math::cos_2pi(u) - std::cos(angle)));
  }
  EXPECT_LE(worst, 1.2e-7);
  EXPECT_EQ(math::sin_2pi(0), 0);
  EXPECT_EQ(math::cos_2pi(0), 1);
  EXPECT_EQ(math::sin_2pi(0.25f), 1);
  EXPECT_EQ(math::cos_2pi(0.5f), -1);
}

TEST(Math, LimitsAreExact) {
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp(-kInf), 0);
  EXPECT_EQ(math::exp(0.0f), 1);
  EXPECT_EQ(math::exp(88.8f), kInf);
  EXPECT_TRUE(std::isfinite(math::exp(88.72f)));
  EXPECT_EQ(math::exp(-104.5f), 0);
  EXPECT_GT(math::exp(-103.5f), 0);  // subnormal
  EXPECT_EQ(math::expm1(kInf), kInf);
  EXPECT_EQ(math::expm1(-kInf), -1);
  EXPECT_EQ(math::log(0.0f), -kInf);
  EXPECT_EQ(math::log(-0.0f), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_EQ(math::log(1.0f), 0);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_TRUE(std::isnan(math::log(-kInf)));
  EXPECT_EQ(math::log1p(-1.0f), -kInf);
  EXPECT_EQ(math::log1p(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::log1p(-2.0f)));
  EXPECT_EQ(math::tanh(kInf), 1);
  EXPECT_EQ(math::tanh(-kInf), -1);
  EXPECT_EQ(math::erf(kInf), 1);
  EXPECT_EQ(math::erf(-kInf), -1);
}

TEST(Math, NanGoesThroughAndSignedZeroIsKept) {
  for (float (*f)(float) : {static_cast<float (*)(float)>(math::exp), static_cast<float (*)(float)>(math::expm1),
                            static_cast<float (*)(float)>(math::log), static_cast<float (*)(float)>(math::log1p),
                            static_cast<float (*)(float)>(math::tanh), static_cast<float (*)(float)>(math::erf)})
    EXPECT_TRUE(std::isnan(f(kNan)));
  for (float (*f)(float) : {static_cast<float (*)(float)>(math::expm1), static_cast<float (*)(float)>(math::log1p),
                            static_cast<float (*)(float)>(math::tanh), static_cast<float (*)(float)>(math::erf)}) {
    EXPECT_TRUE(std::signbit(f(-0.0f)) && f(-0.0f) == 0);
    EXPECT_TRUE(!std::signbit(f(0.0f)) && f(0.0f) == 0);
  }
}

}  // namespace
}  // namespace keel
