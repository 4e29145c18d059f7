#pragma once
// One row for every elementwise operation: what it should compute, in double precision and plain words.

#include <cmath>
#include <vector>

#include "keel/kernels/functors.h"

namespace keel::testing {

struct UnaryRow {
  int op;
  double low, high;  // where its inputs are drawn
  double parameter;
  double (*value)(double x, double parameter);
  double (*derivative)(double x, double parameter);
};

struct BinaryRow {
  int op;
  double low, high;  // where both inputs are drawn
  double (*value)(double a, double b);
  double (*derivative_a)(double a, double b);  // null for comparisons
  double (*derivative_b)(double a, double b);
};

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

template <class Op>
constexpr int unary_number = index_of<Op, UnaryOps>;
template <class Op>
constexpr int binary_number = index_of<Op, BinaryOps>;

using D = double;

// GELU and SiLU, which are straight lines for large numbers: their derivatives are 1 far above 0 and 0 far below.
inline const std::vector<int>& gated_operations() {
  static const std::vector<int> operations = {unary_number<Gelu>, unary_number<GeluTanh>, unary_number<Silu>};
  return operations;
}
inline const std::vector<double>& huge_arguments() {
  static const std::vector<double> arguments = {1100, 6e4, 1e12, 2e13, 1e19, 3e38, INFINITY};
  return arguments;
}

inline const std::vector<UnaryRow>& unary_rows() {
  static const D pi = std::acos(-1.0);
  static const std::vector<UnaryRow> rows = {
      {unary_number<Neg>, -3, 3, 0, [](D x, D) { return -x; }, [](D, D) { return -1.0; }},
      {unary_number<Abs>, -3, 3, 0, [](D x, D) { return std::fabs(x); },
       [](D x, D) { return x == 0 ? 0.0 : std::copysign(1.0, x); }},
      {unary_number<Sign>, -3, 3, 0, [](D x, D) { return x == 0 ? 0.0 : std::copysign(1.0, x); },
       [](D, D) { return 0.0; }},
      {unary_number<Floor>, -3, 3, 0, [](D x, D) { return std::floor(x); }, [](D, D) { return 0.0; }},
      {unary_number<Exp>, -9, 5, 0, [](D x, D) { return std::exp(x); }, [](D x, D) { return std::exp(x); }},
      {unary_number<Log>, 0.01, 9, 0, [](D x, D) { return std::log(x); }, [](D x, D) { return 1 / x; }},
      {unary_number<Sqrt>, 0.01, 9, 0, [](D x, D) { return std::sqrt(x); }, [](D x, D) { return 0.5 / std::sqrt(x); }},
      {unary_number<Rsqrt>, 0.05, 9, 0, [](D x, D) { return 1 / std::sqrt(x); },
       [](D x, D) { return -0.5 / (x * std::sqrt(x)); }},
      {unary_number<Square>, -3, 3, 0, [](D x, D) { return x * x; }, [](D x, D) { return 2 * x; }},
      {unary_number<Reciprocal>, 0.2, 5, 0, [](D x, D) { return 1 / x; }, [](D x, D) { return -1 / (x * x); }},
      {unary_number<Sigmoid>, -9, 9, 0, [](D x, D) { return logistic(x); },
       [](D x, D) { return logistic(x) * logistic(-x); }},
      {unary_number<Tanh>, -6, 6, 0, [](D x, D) { return std::tanh(x); },
       [](D x, D) { return 1 / (std::cosh(x) * std::cosh(x)); }},
      {unary_number<Relu>, -3, 3, 0, [](D x, D) { return std::fmax(x, 0); }, [](D x, D) { return x > 0 ? 1.0 : 0.0; }},
      {unary_number<LeakyRelu>, -3, 3, 0.125, [](D x, D slope) { return x > 0 ? x : slope * x; },
       [](D x, D slope) { return x > 0 ? 1 : slope; }},
      {unary_number<Elu>, -6, 3, 0, [](D x, D) { return x > 0 ? x : std::expm1(x); },
       [](D x, D) { return x > 0 ? 1 : std::exp(x); }},
      {unary_number<Softplus>, -9, 9, 0, [](D x, D) { return std::log1p(std::exp(x)); },
       [](D x, D) { return logistic(x); }},
      {unary_number<Gelu>, -6, 6, 0, [](D x, D) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; },
       [](D x, D) { return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * pi); }},
      {unary_number<GeluTanh>, -6, 6, 0,
       [](D x, D) { return x / 2 * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x))); },
       [](D x, D) {
         const D t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
         return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
       }},
      {unary_number<Silu>, -9, 9, 0, [](D x, D) { return x * logistic(x); },
       [](D x, D) { return logistic(x) + x * logistic(x) * logistic(-x); }},
      {unary_number<PowScalar>, 0.1, 3, 2.5, [](D x, D p) { return std::pow(x, p); },
       [](D x, D p) { return p * std::pow(x, p - 1); }},
      {unary_number<AddScalar>, -3, 3, 0.75, [](D x, D p) { return x + p; }, [](D, D) { return 1.0; }},
      {unary_number<MulScalar>, -3, 3, 0.75, [](D x, D p) { return x * p; }, [](D, D p) { return p; }},
  };
  return rows;
}

inline const std::vector<BinaryRow>& binary_rows() {
  static const std::vector<BinaryRow> rows = {
      {binary_number<Add>, -3, 3, [](D a, D b) { return a + b; }, [](D, D) { return 1.0; }, [](D, D) { return 1.0; }},
      {binary_number<Sub>, -3, 3, [](D a, D b) { return a - b; }, [](D, D) { return 1.0; }, [](D, D) { return -1.0; }},
      {binary_number<Mul>, -3, 3, [](D a, D b) { return a * b; }, [](D, D b) { return b; }, [](D a, D) { return a; }},
      {binary_number<Div>, 0.3, 3, [](D a, D b) { return a / b; }, [](D, D b) { return 1 / b; },
       [](D a, D b) { return -a / (b * b); }},
      {binary_number<Maximum>, -3, 3, [](D a, D b) { return std::fmax(a, b); },
       [](D a, D b) { return a == b ? 0.5 : (a > b ? 1.0 : 0.0); },
       [](D a, D b) { return a == b ? 0.5 : (b > a ? 1.0 : 0.0); }},
      {binary_number<Minimum>, -3, 3, [](D a, D b) { return std::fmin(a, b); },
       [](D a, D b) { return a == b ? 0.5 : (a < b ? 1.0 : 0.0); },
       [](D a, D b) { return a == b ? 0.5 : (b < a ? 1.0 : 0.0); }},
      {binary_number<Pow>, 0.2, 2, [](D a, D b) { return std::pow(a, b); },
       [](D a, D b) { return b * std::pow(a, b - 1); }, [](D a, D b) { return std::pow(a, b) * std::log(a); }},
      {binary_number<Equal>, -3, 3, [](D a, D b) { return a == b ? 1.0 : 0.0; }, nullptr, nullptr},
      {binary_number<NotEqual>, -3, 3, [](D a, D b) { return a != b ? 1.0 : 0.0; }, nullptr, nullptr},
      {binary_number<Less>, -3, 3, [](D a, D b) { return a < b ? 1.0 : 0.0; }, nullptr, nullptr},
      {binary_number<LessEqual>, -3, 3, [](D a, D b) { return a <= b ? 1.0 : 0.0; }, nullptr, nullptr},
      {binary_number<Greater>, -3, 3, [](D a, D b) { return a > b ? 1.0 : 0.0; }, nullptr, nullptr},
      {binary_number<GreaterEqual>, -3, 3, [](D a, D b) { return a >= b ? 1.0 : 0.0; }, nullptr, nullptr},
  };
  return rows;
}

}  // namespace keel::testing
