#pragma once
// The tables of elementwise operations, one entry for each functor of the lists, from a backend's function templates.
//
// Loops has static member templates over a functor: unary_forward<Op>, unary_backward<Op>, binary_forward<Op> and
// binary_backward<Op>, with the signatures of UnaryEntry and BinaryEntry. Comparisons ask for no binary_backward.

#include "keel/kernels/elementwise.h"

namespace keel {

namespace detail {
template <class Loops, class Op>
constexpr BinaryEntry binary_entry() {
  if constexpr (is_comparison<Op>) return {Loops::template binary_forward<Op>, nullptr};
  else return {Loops::template binary_forward<Op>, Loops::template binary_backward<Op>};
}
}  // namespace detail

template <class Loops, class... Ops>
UnaryTable unary_table(OpList<Ops...>) {
  return {UnaryEntry{Loops::template unary_forward<Ops>, Loops::template unary_backward<Ops>}...};
}
template <class Loops, class... Ops>
BinaryTable binary_table(OpList<Ops...>) {
  return {detail::binary_entry<Loops, Ops>()...};
}

}  // namespace keel
