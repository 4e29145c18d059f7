#pragma once
// The elementwise operations of one input: y = forward(x), backward(gradient of y, what was kept).

#include <string_view>

#include "keel/runtime/math.h"

namespace keel {

// What the backward of a unary operation needs: nothing, its input, or its output.
enum class Keep : unsigned char { none, input, output };

struct Neg {
  static constexpr std::string_view name = "neg";
  static constexpr Keep keep = Keep::none;
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T x) const {
    return -x;
  }
  template <class T>
  KEEL_HD T backward(T grad, T) const {
    return -grad;
  }
};

struct Abs {
  static constexpr std::string_view name = "abs";
  static constexpr Keep keep = Keep::input;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::abs(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return x > T(0) ? grad : (x < T(0) ? -grad : T(0));
  }
};

struct Sign {
  static constexpr std::string_view name = "sign";
  static constexpr Keep keep = Keep::none;
  template <class T>
  KEEL_HD T forward(T x) const {
    return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
  }
  template <class T>
  KEEL_HD T backward(T, T) const {
    return T(0);
  }
};

struct Floor {
  static constexpr std::string_view name = "floor";
  static constexpr Keep keep = Keep::none;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::floor(x);
  }
  template <class T>
  KEEL_HD T backward(T, T) const {
    return T(0);
  }
};

struct Exp {
  static constexpr std::string_view name = "exp";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::exp(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return grad * y;
  }
};

struct Log {
  static constexpr std::string_view name = "log";
  static constexpr Keep keep = Keep::input;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::log(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return grad / x;
  }
};

struct Sqrt {
  static constexpr std::string_view name = "sqrt";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::sqrt(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return T(0.5) * grad / y;
  }
};

struct Rsqrt {
  static constexpr std::string_view name = "rsqrt";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::rsqrt(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return T(-0.5) * grad * y * y * y;
  }
};

struct Square {
  static constexpr std::string_view name = "square";
  static constexpr Keep keep = Keep::input;
  template <class T>
  KEEL_HD T forward(T x) const {
    return x * x;
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return T(2) * grad * x;
  }
};

struct Reciprocal {
  static constexpr std::string_view name = "reciprocal";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return T(1) / x;
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return -grad * y * y;
  }
};

struct Sigmoid {
  static constexpr std::string_view name = "sigmoid";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return T(1) / (T(1) + math::exp(-x));
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return grad * y * (T(1) - y);
  }
};

struct Tanh {
  static constexpr std::string_view name = "tanh";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::tanh(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return grad * (T(1) - y * y);
  }
};

struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr Keep keep = Keep::output;
  template <class T>
  KEEL_HD T forward(T x) const {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  KEEL_HD T backward(T grad, T y) const {
    return y > T(0) ? grad : T(0);
  }
};

struct LeakyRelu {
  static constexpr std::string_view name = "leaky_relu";
  static constexpr Keep keep = Keep::input;
  double parameter;  // the slope below 0
  template <class T>
  KEEL_HD T forward(T x) const {
    return x < T(0) ? T(parameter) * x : x;
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return x > T(0) ? grad : T(parameter) * grad;
  }
};

// Clevert et al. 2016, with alpha = 1.
struct Elu {
  static constexpr std::string_view name = "elu";
  static constexpr Keep keep = Keep::input;  // the output plus 1 would have lost the digits of e^x in 16 bits
  template <class T>
  KEEL_HD T forward(T x) const {
    return x > T(0) ? x : math::expm1(x);
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return x > T(0) ? grad : grad * math::exp(x);
  }
};

struct Softplus {
  static constexpr std::string_view name = "softplus";
  static constexpr Keep keep = Keep::input;
  template <class T>
  KEEL_HD T forward(T x) const {
    return (x < T(0) ? T(0) : x) + math::log1p(math::exp(-math::abs(x)));
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return grad / (T(1) + math::exp(-x));
  }
};

// x Phi(x), Phi being the normal distribution function (Hendrycks and Gimpel 2016).
struct Gelu {
  static constexpr std::string_view name = "gelu";
  static constexpr Keep keep = Keep::input;
  static constexpr double kRootHalf = 0.70710678118654752440;
  static constexpr double kDensityAtZero = 0.39894228040143267794;
  template <class T>
  KEEL_HD T forward(T x) const {
    return T(0.5) * x * (T(1) + math::erf(x * T(kRootHalf)));
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    const T probability = T(0.5) * (T(1) + math::erf(x * T(kRootHalf)));
    const T density = T(kDensityAtZero) * math::exp_flushed(T(-0.5) * x * x);
    // x may be infinite where the density is 0, and their product NaN.
    return grad * (density == T(0) ? probability : math::fma(x, density, probability));
  }
};

// 1 / (1 + e^-w) for derivatives: 0 below e^-87, which is cheaper than all the numbers of fp32.
template <class T>
KEEL_HD T logistic_flushed(T w) {
  const T falling = math::exp_flushed(-w);
  return T(1) / (T(1) + (w < T(-87) ? T(INFINITY) : falling));
}

// The tanh approximation of GELU: 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). GPUs take
// a second formula for 16-bit numbers: cuda/quick_functors.h.
struct GeluTanh {
  static constexpr std::string_view name = "gelu_tanh";
  static constexpr Keep keep = Keep::input;
  static constexpr double kScale = 1.59576912160573071176;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  // A square of x past which s is 0 or 1 and the derivative s: x^3 may be infinite there, and infinity times 0 is NaN.
  static constexpr double kSaturated = 1024;
  template <class T>
  KEEL_HD T forward(T x) const {
    const T twice_u = x * math::fma(T(kScale * kCubic) * x, x, T(kScale));
    return x / (T(1) + math::exp(-twice_u));
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    const T square = x * x;
    const T twice_u = x * math::fma(T(kScale * kCubic), square, T(kScale));
    const T slope = math::fma(T(3 * kScale * kCubic), square, T(kScale));
    const T s = logistic_flushed(twice_u);
    return grad * s * (square < T(kSaturated) ? math::fma(x * slope, T(1) - s, T(1)) : T(1));
  }
};

// x sigmoid(x), also called swish (Elfwing et al. 2018).
struct Silu {
  static constexpr std::string_view name = "silu";
  static constexpr Keep keep = Keep::input;
  static constexpr double kSaturated = 1024;  // of |x|, as in GeluTanh
  template <class T>
  KEEL_HD T forward(T x) const {
    return x / (T(1) + math::exp(-x));
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    const T s = logistic_flushed(x);
    return grad * s * (math::abs(x) < T(kSaturated) ? math::fma(x, T(1) - s, T(1)) : T(1));
  }
};

struct PowScalar {
  static constexpr std::string_view name = "pow_scalar";
  static constexpr Keep keep = Keep::input;
  double parameter;  // the exponent
  template <class T>
  KEEL_HD T forward(T x) const {
    return math::pow(x, T(parameter));
  }
  template <class T>
  KEEL_HD T backward(T grad, T x) const {
    return parameter == 0 ? T(0) : grad * T(parameter) * math::pow(x, T(parameter - 1));
  }
};

struct AddScalar {
  static constexpr std::string_view name = "add_scalar";
  static constexpr Keep keep = Keep::none;
  double parameter;
  template <class T>
  KEEL_HD T forward(T x) const {
    return x + T(parameter);
  }
  template <class T>
  KEEL_HD T backward(T grad, T) const {
    return grad;
  }
};

struct MulScalar {
  static constexpr std::string_view name = "mul_scalar";
  static constexpr Keep keep = Keep::none;
  double parameter;
  template <class T>
  KEEL_HD T forward(T x) const {
    return x * T(parameter);
  }
  template <class T>
  KEEL_HD T backward(T grad, T) const {
    return grad * T(parameter);
  }
};

}  // namespace keel
