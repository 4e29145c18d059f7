#pragma once
// Elements of two vectors in another order.

namespace keel::cpu {

// Element i of the result is element From[i] of a and b side by side.
template <int... From, class V>
V shuffled(V a, V b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, From...);
#else  // g++ 11 has it by another name, with the places in a vector
  using Places = decltype(a == b);
  return __builtin_shuffle(a, b, Places{From...});
#endif
}

}  // namespace keel::cpu
