#pragma once
// The one list of elementwise operations, from which backends, autograd and tests make their tables.
//
// A functor holds value and derivative side by side and works on float or double; backends widen narrower
// floats. To add an operation, write its functor in unary_functors.h or binary_functors.h, add it to its
// list here, and give it a row in tests/kernels/op_table.h. On a GPU an operation may have a second formula for 16-bit
// numbers, in cuda/quick_functors.h; GeluTanh has one.

#include <string_view>
#include <type_traits>

#include "keel/kernels/binary_functors.h"
#include "keel/kernels/unary_functors.h"

namespace keel {

template <class... Ops>
struct OpList {
  static constexpr int size = sizeof...(Ops);
  static constexpr std::string_view names[] = {Ops::name...};
};

using UnaryOps = OpList<Neg, Abs, Sign, Floor, Exp, Log, Sqrt, Rsqrt, Square, Reciprocal, Sigmoid, Tanh, Relu,
                        LeakyRelu, Elu, Softplus, Gelu, GeluTanh, Silu, PowScalar, AddScalar, MulScalar>;
using BinaryOps =
    OpList<Add, Sub, Mul, Div, Maximum, Minimum, Pow, Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual>;

namespace detail {
template <class Op>
concept Comparison = requires {
  Op::comparison;
};
template <class Op>
concept Integral = requires {
  Op::integral;
};

template <class Op, class... Ops>
constexpr int position_of(OpList<Ops...>) {
  int at = -1, i = 0;
  ((std::is_same_v<Op, Ops> ? at = i : at, ++i), ...);
  return at;
}
template <class... Ops>
constexpr Keep keep_at(int op, OpList<Ops...>) {
  constexpr Keep keeps[] = {Ops::keep...};
  return keeps[op];
}
template <class... Ops>
constexpr bool comparison_at(int op, OpList<Ops...>) {
  constexpr bool comparisons[] = {Comparison<Ops>...};
  return comparisons[op];
}
}  // namespace detail

template <class Op>
inline constexpr bool is_comparison = detail::Comparison<Op>;
// Offered for integers too.
template <class Op>
inline constexpr bool is_integral_op = detail::Comparison<Op> || detail::Integral<Op>;

// The number of an operation: its place in its list.
template <class Op, class List>
inline constexpr int index_of = [] {
  constexpr int at = detail::position_of<Op>(List{});
  static_assert(at >= 0, "this operation is not in the list");
  return at;
}();

constexpr std::string_view name_of_unary(int op) { return UnaryOps::names[op]; }
constexpr std::string_view name_of_binary(int op) { return BinaryOps::names[op]; }
constexpr Keep keep_of_unary(int op) { return detail::keep_at(op, UnaryOps{}); }
constexpr bool is_comparison_op(int op) { return detail::comparison_at(op, BinaryOps{}); }

// The functor with its number, which most ignore.
template <class Op>
KEEL_HD constexpr Op make_op(double parameter) {
  if constexpr (requires(Op op) { op.parameter; }) return Op{parameter};
  else return Op{};
}

}  // namespace keel
