#pragma once
// exp, log, tanh, erf as branch-free polynomials with stated errors, for host and device.
//
// The float versions have no branch and no table, so that loops over them vectorise, and use only
// exactly rounded operations (fma, multiply, divide, sqrt), so that every machine gives the same bits.
// Their coefficients are our own Remez fits. The errors below, in units of the last place, are upper
// bounds that tests/runtime/math_test.cpp measures. NaN gives NaN everywhere; subnormal arguments and
// results count like others unless said otherwise. The double versions are the standard library's.
//
//   function     ulp   limits
//   exp          1.1   overflows to inf above 88.72, falls through the subnormals to 0 below -103.97
//   exp_flushed  1.1   of x < 88; 0 below -87
//   expm1        1.6   -1 below -17.4; -0 for -0
//   log          0.9   -inf at 0, NaN below
//   log1p        2.0   -inf at -1, NaN below
//   tanh         1.8   -0 for -0
//   erf          1.2   -0 for -0
//   sin_2pi, cos_2pi   within 1.2e-7 of the exact value, for |u| < 2^20

#include <bit>
#include <cmath>
#include <cstdint>

#include "keel/runtime/hd.h"

namespace keel::math {

KEEL_HD inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
KEEL_HD inline double fma(double a, double b, double c) { return std::fma(a, b, c); }
KEEL_HD inline float sqrt(float x) { return std::sqrt(x); }
KEEL_HD inline double sqrt(double x) { return std::sqrt(x); }
KEEL_HD inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
KEEL_HD inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
KEEL_HD inline float abs(float x) { return std::fabs(x); }
KEEL_HD inline double abs(double x) { return std::fabs(x); }
KEEL_HD inline float floor(float x) { return std::floor(x); }
KEEL_HD inline double floor(double x) { return std::floor(x); }
KEEL_HD inline float copysign(float x, float sign) { return std::copysign(x, sign); }

// The standard library's: within 1 ulp, but not vectorised (about 10 ns). A power that keeps 1 ulp
// needs a logarithm in twice the precision, and no model's inner loop raises to a power. A GPU has
// CUDA's, which is less exact: the one function here whose bits are not the same on every machine.
KEEL_HD inline float pow(float x, float y) { return std::pow(x, y); }
KEEL_HD inline double pow(double x, double y) { return std::pow(x, y); }

namespace detail {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits, so that products with exponents are exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kRoundToInteger = 0x1.8p23f;  // adding it rounds to an integer held in the low bits

// 2^n for n in [-126, 127].
KEEL_HD inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(n) + 127u) << 23);
}

// e^x = 2^n (1 + p), |p| < 0.42, for |x| < 2^15; beyond it n and p are of no use, NaN gives a p of NaN.
struct ExpParts {
  std::int32_t n;
  float p;
};
KEEL_HD inline ExpParts exp_parts(float x) {
  const float shifted = fma(x, kLog2E, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float q = 0x1.6a23d0p-10f;
  q = fma(q, r, 0x1.123a20p-7f);
  q = fma(q, r, 0x1.5558f2p-5f);
  q = fma(q, r, 0x1.555492p-3f);
  q = fma(q, r, 0x1.fffffcp-2f);
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRoundToInteger);
  return {static_cast<std::int32_t>(exponent), fma(r * r, q, r)};
}

}  // namespace detail

// Out of range the parts mean nothing; the result is replaced afterwards, which costs less than
// clamping the argument first.
KEEL_HD inline float exp(float x) {
  const detail::ExpParts parts = detail::exp_parts(x);
  // Two factors, since 2^n itself leaves the range of normal numbers at both ends.
  const std::int32_t half = parts.n >> 1;
  const float scaled = fma(parts.p, detail::power_of_two(half), detail::power_of_two(half));
  float result = scaled * detail::power_of_two(parts.n - half);
  result = x > 89.0f ? INFINITY : result;
  return x < -105.0f ? 0.0f : result;
}
KEEL_HD inline double exp(double x) { return std::exp(x); }

// e^x for x < 88, where results below e^-87 may be 0: a third cheaper, for the terms of a softmax.
KEEL_HD inline float exp_flushed(float x) {
  const detail::ExpParts parts = detail::exp_parts(x);
  const float scale = detail::power_of_two(parts.n);
  const float result = fma(parts.p, scale, scale);
  return x < -87.0f ? 0.0f : result;
}
KEEL_HD inline double exp_flushed(double x) { return std::exp(x); }

KEEL_HD inline float expm1(float x) {
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -18.0f ? -18.0f : clamped;
  const detail::ExpParts parts = detail::exp_parts(clamped);
  // 2^n (1 + p) - 1 at half its size, so that 2^128 does not overflow too early.
  const float scale = detail::power_of_two(parts.n - 1);
  const float result = 2.0f * fma(parts.p, scale, scale - 0.5f);
  return abs(x) < 0x1p-25f ? x : result;
}
KEEL_HD inline double expm1(double x) { return std::expm1(x); }

KEEL_HD inline float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const std::uint32_t word = std::bit_cast<std::uint32_t>(subnormal ? x * 0x1p23f : x);
  // x = 2^e (1 + f) with 1 + f between the roots of 1/2 and 2.
  const std::int32_t e = static_cast<std::int32_t>(word - 0x3f3504f3u) >> 23;
  const float f = std::bit_cast<float>(word - (static_cast<std::uint32_t>(e) << 23)) - 1.0f;
  const float exponent = static_cast<float>(e - (subnormal ? 23 : 0));
  float p = -0x1.38c19ep-4f;
  p = fma(p, f, 0x1.056494p-3f);
  p = fma(p, f, -0x1.0d875ap-3f);
  p = fma(p, f, 0x1.22d90ap-3f);
  p = fma(p, f, -0x1.5471f6p-3f);
  p = fma(p, f, 0x1.99a012p-3f);
  p = fma(p, f, -0x1.000228p-2f);
  p = fma(p, f, 0x1.555554p-2f);
  const float square = f * f;
  float tail = square * f * p;
  tail = fma(-0.5f, square, tail);
  tail = fma(exponent, detail::kLn2Low, tail);
  float result = fma(exponent, detail::kLn2High, f + tail);
  result = x < INFINITY ? result : x;  // inf and NaN
  result = x == 0.0f ? -INFINITY : result;
  return x < 0.0f ? NAN : result;
}
KEEL_HD inline double log(double x) { return std::log(x); }

// log(1 + x), with the rounding error of 1 + x put back.
KEEL_HD inline float log1p(float x) {
  const float sum = 1.0f + x;
  const float correction = (x - (sum - 1.0f)) / sum;
  const float result = log(sum) + (sum > 0.0f && sum < INFINITY ? correction : 0.0f);
  return abs(x) < 0x1p-25f ? x : result;
}
KEEL_HD inline double log1p(double x) { return std::log1p(x); }

// tanh|x| = (e^2|x| - 1) / (e^2|x| + 1).
KEEL_HD inline float tanh(float x) {
  const float magnitude = abs(x);
  const float clamped = magnitude > 9.5f ? 9.5f : magnitude;
  const detail::ExpParts parts = detail::exp_parts(2.0f * clamped);
  const float scale = detail::power_of_two(parts.n);
  const float above = fma(parts.p, scale, scale - 1.0f);
  return copysign(above / (above + 2.0f), x);
}
KEEL_HD inline double tanh(double x) { return std::tanh(x); }

// A polynomial in x^2 near 0; beyond it 1 - exp(-t) with t = -log(erfc|x|) as a polynomial.
KEEL_HD inline float erf(float x) {
  const float magnitude = abs(x);
  const float square = x * x;
  float near = -0x1.4b183ap-11f;
  near = fma(near, square, 0x1.4b074ep-8f);
  near = fma(near, square, -0x1.b72208p-6f);
  near = fma(near, square, 0x1.ce23dep-4f);
  near = fma(near, square, -0x1.81271ap-2f);
  near = fma(near, square, 0x1.06eba8p-3f);
  near = fma(near, magnitude, magnitude);

  const float clamped = magnitude > 4.0f ? 4.0f : magnitude;
  float t = -0x1.c4b1eep-13f;
  t = fma(t, clamped, 0x1.a76674p-9f);
  t = fma(t, clamped, -0x1.77d3a0p-6f);
  t = fma(t, clamped, 0x1.af75c8p-4f);
  t = fma(t, clamped, 0x1.45757ep-1f);
  t = fma(t, clamped, 0x1.073b28p-3f);
  t = fma(t, clamped, clamped);
  const detail::ExpParts parts = detail::exp_parts(-t);
  const float scale = detail::power_of_two(parts.n);
  const float far = 1.0f - fma(parts.p, scale, scale);
  return copysign(magnitude < 0.8425f ? near : far, x);
}
KEEL_HD inline double erf(double x) { return std::erf(x); }

struct SinCos {
  float sin, cos;
};
// The sine and cosine of 2 pi u.
KEEL_HD inline SinCos sincos_2pi(float u) {
  const float shifted = fma(u, 4.0f, detail::kRoundToInteger);
  const std::int32_t quadrant = std::bit_cast<std::int32_t>(shifted);
  const float r = fma(shifted - detail::kRoundToInteger, -0.25f, u);
  const float square = r * r;
  float s = -0x1.2d9302p+6f;
  s = fma(s, square, 0x1.465e92p+6f);
  s = fma(s, square, -0x1.4abbbap+5f);
  s = fma(s, square, 0x1.921fb6p+2f) * r;
  float c = 0x1.d9c364p+5f;
  c = fma(c, square, -0x1.55c57cp+6f);
  c = fma(c, square, 0x1.03c1dcp+6f);
  c = fma(c, square, -0x1.3bd3ccp+4f);
  c = fma(c, square, 1.0f);
  const float sin = quadrant & 1 ? c : s;
  const float cos = quadrant & 1 ? s : c;
  return {quadrant & 2 ? -sin : sin, (quadrant + 1) & 2 ? -cos : cos};
}
KEEL_HD inline float sin_2pi(float u) { return sincos_2pi(u).sin; }
KEEL_HD inline float cos_2pi(float u) { return sincos_2pi(u).cos; }

}  // namespace keel::math
