#pragma once
// The elementwise operations of two inputs: forward(a, b), and each input's gradient from the output's.

#include <string_view>

#include "keel/runtime/math.h"

namespace keel {

struct Add {
  static constexpr std::string_view name = "add";
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a + b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T, T) const {
    return grad;
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T, T) const {
    return grad;
  }
};

struct Sub {
  static constexpr std::string_view name = "sub";
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a - b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T, T) const {
    return grad;
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T, T) const {
    return -grad;
  }
};

struct Mul {
  static constexpr std::string_view name = "mul";
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a * b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T, T b) const {
    return grad * b;
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T a, T) const {
    return grad * a;
  }
};

struct Div {
  static constexpr std::string_view name = "div";
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a / b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T, T b) const {
    return grad / b;
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T a, T b) const {
    return -grad * (a / b / b);
  }
};

// The larger one; NaN if either is. Where the inputs are equal, each gets half of the gradient.
struct Maximum {
  static constexpr std::string_view name = "maximum";
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a > b || a != a ? a : b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T a, T b) const {
    return a == b ? T(0.5) * grad : (a < b ? T(0) : grad);
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T a, T b) const {
    return backward_a(grad, b, a);
  }
};

// The smaller one, otherwise as Maximum.
struct Minimum {
  static constexpr std::string_view name = "minimum";
  static constexpr bool integral = true;
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return a < b || a != a ? a : b;
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T a, T b) const {
    return a == b ? T(0.5) * grad : (a > b ? T(0) : grad);
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T a, T b) const {
    return backward_a(grad, b, a);
  }
};

struct Pow {
  static constexpr std::string_view name = "pow";
  template <class T>
  KEEL_HD T forward(T a, T b) const {
    return math::pow(a, b);
  }
  template <class T>
  KEEL_HD T backward_a(T grad, T a, T b) const {
    return b == T(0) ? T(0) : grad * b * math::pow(a, b - T(1));
  }
  template <class T>
  KEEL_HD T backward_b(T grad, T a, T b) const {
    return a == T(0) && b >= T(0) ? T(0) : grad * math::pow(a, b) * math::log(a);
  }
};

// Comparisons give 1 or 0 in a u8 tensor and have no backward.

struct Equal {
  static constexpr std::string_view name = "equal";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a == b;
  }
};

struct NotEqual {
  static constexpr std::string_view name = "not_equal";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a != b;
  }
};

struct Less {
  static constexpr std::string_view name = "less";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a < b;
  }
};

struct LessEqual {
  static constexpr std::string_view name = "less_equal";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a <= b;
  }
};

struct Greater {
  static constexpr std::string_view name = "greater";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a > b;
  }
};

struct GreaterEqual {
  static constexpr std::string_view name = "greater_equal";
  static constexpr bool comparison = true;
  template <class T>
  KEEL_HD bool forward(T a, T b) const {
    return a >= b;
  }
};

}  // namespace keel
