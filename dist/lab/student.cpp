#include "keel/dist/lab/student.h"

#include <cmath>

#include "keel/runtime/error.h"

namespace keel::lab {

// Newton's method on the integral of the density from 0 to t, by Simpson's rule. Below the quantile the integral is
// concave, so that no step goes beyond it.
double student_quantile(std::int64_t freedom) {
  KEEL_CHECK(freedom >= 1, "Student's distribution needs a degree of freedom, got ", freedom);
  const auto v = static_cast<double>(freedom);
  // Gamma((v + 1) / 2) / Gamma(v / 2), from v = 1 on. std::lgamma() would write a global.
  const double pi = std::acos(-1.0);
  double ratio = 1 / std::sqrt(pi);
  for (std::int64_t k = 1; k < freedom; ++k) ratio = static_cast<double>(k) / 2 / ratio;
  const double factor = ratio / std::sqrt(v * pi);
  const auto density = [&](double t) { return factor * std::pow(1 + t * t / v, -(v + 1) / 2); };
  const auto integral = [&](double t) {
    constexpr int kPieces = 2000;  // an even number
    double sum = density(0) + density(t);
    for (int i = 1; i < kPieces; ++i) sum += (i % 2 == 1 ? 4 : 2) * density(t * i / kPieces);
    return sum * t / kPieces / 3;
  };
  double t = 1.9;
  for (int i = 0; i < 60; ++i) {
    const double step = (0.475 - integral(t)) / density(t);
    t += step;
    if (step < 1e-9 * t) break;
  }
  return t;
}

}  // namespace keel::lab
