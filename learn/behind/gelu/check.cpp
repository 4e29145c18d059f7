#include <numbers>

#include "learn/behind/numbers.h"

void gelu_backward(learn::In x, learn::In dy, learn::Out dx);

namespace {

const double kRoot = std::sqrt(2 / std::numbers::pi);

double inside(double x) { return kRoot * (x + 0.044715 * x * x * x); }
double gelu(double x) { return x / 2 * (1 + std::tanh(inside(x))); }

// The products of dy and `slope` at x.
template <class F>
std::vector<double> times(const std::vector<float>& dy, const std::vector<float>& x, const F& slope) {
  std::vector<double> dx;
  for (std::size_t i = 0; i < x.size(); ++i) dx.push_back(double{dy[i]} * slope(double{x[i]}));
  return dx;
}

std::vector<learn::Mistake> mistakes(const std::vector<float>& x, const std::vector<float>& dy) {
  const auto first = [](double v) { return (1 + std::tanh(inside(v))) / 2; };
  const auto of_tanh = [](double v) { return 1 - std::tanh(inside(v)) * std::tanh(inside(v)); };
  const auto whole = [](double v) { return learn::slope(gelu, v); };
  const std::vector<float> ones(x.size(), 1);
  return {
      {times(ones, x, whole),
       "That is the derivative of y with respect to x. The factor dy is missing, and with it all that comes "
       "after y."},
      {times(dy, x, first),
       "That is dy (1 + t) / 2, where t is the tanh. y is a product, x / 2 times 1 + t, and both of its "
       "factors depend on x: the derivative has two terms."},
      {times(dy, x, [&](double v) { return first(v) + v / 2 * of_tanh(v); }),
       "The derivative of tanh(u) with respect to u is 1 - tanh(u)^2, as you have it. It has to be "
       "multiplied by the derivative of what stands inside of tanh, r (1 + 3 c x^2)."},
      {times(dy, x, [&](double v) { return first(v) + v / 2 * of_tanh(v) * kRoot; }),
       "x stands twice inside of tanh, also as c x^3. Its derivative is r (1 + 3 c x^2), and here it is r "
       "alone."},
      {times(dy, x, [&](double v) { return first(v) + of_tanh(v) * kRoot * (1 + 3 * 0.044715 * v * v) / 2; }),
       "The second term has lost its factor x."},
      {times(dy, x,
             [](double v) {
               return (1 + std::erf(v / std::numbers::sqrt2)) / 2 +
                      v * std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
             }),
       "That is the derivative of the form with erf. It is close, and this exercise has the form with tanh."},
      {times(dy, x, gelu), "That is dy times GELU itself, and not its derivative."},
  };
}

void expect_slopes(const std::vector<float>& x, const std::vector<float>& dy) {
  learn::Written dx(static_cast<std::int64_t>(x.size()));
  gelu_backward(learn::in(x), learn::in(dy), dx);
  dx.expect_whole("dx");
  const std::vector<double> expected = times(dy, x, [](double v) { return learn::slope(gelu, v); });
  std::string given;
  if (const std::int64_t i = learn::first_apart(dx.read(), expected, 2e-6); i >= 0) {
    const auto at = static_cast<std::size_t>(i);
    given = fmt::format("x[{}] is {} and dy[{}] is {}", i, x[at], i, dy[at]);
  }
  learn::expect_numbers("dx", 0, dx.read(), expected, 2e-6, given, mistakes(x, dy));
}

void saturates() {
  const std::vector<float> x = {9, -9, 20, -20, 100, -100, 1000, -1000}, dy = {2, 2, 2, 2, 2, 2, 2, 2};
  learn::Written dx(8);
  gelu_backward(learn::in(x), learn::in(dy), dx);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isnan(dx.read()[i]))
      learn::wrong(
          "x[{}] is {}, and dx[{}] is NaN. An exponential of x^3 overflows, and infinite / infinite is no "
          "number. std::tanh() does not overflow: it is 1 or -1 there.",
          i, x[i], i);
  std::vector<double> expected;
  for (const float v : x) expected.push_back(v > 0 ? 2 : 0);
  learn::expect_near(
      "dx", dx.read(), expected, 1e-6,
      "x is large, so GELU is x itself, with the derivative 1, or 0, with the derivative 0; dy is 2.");
}

}  // namespace

int main() {
  return learn::run({
      {"dx is dy times the derivative at a few places",
       [] {
         expect_slopes({0, 1, -1, 0.5F, 2}, {1, -2, 3, 0.25F, 1.5F});
       }},
      {"a row of one number has its derivative", [] { expect_slopes({-0.75F}, {3}); }},
      {"the derivative is right between -5 and 5",
       [] { expect_slopes(learn::draw(1001, 3, -5, 5), learn::draw(1001, 4)); }},
      {"far from 0 the derivative is 1 or 0", saturates},
  });
}
