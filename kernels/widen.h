#pragma once
// Conversions between the dtype that is stored and the one that is computed in.

#include <type_traits>

#include "keel/runtime/dtype.h"

namespace keel {

// `value` as C, by default what sums of its dtype are kept in. Exact, but for f64 and integers as float.
template <class C = void, class T>
KEEL_HD auto widen(T value) {
  using Wide = std::conditional_t<std::is_void_v<C>, Accumulator<T>, C>;
  if constexpr (std::is_arithmetic_v<T>) return static_cast<Wide>(value);
  else return static_cast<Wide>(static_cast<float>(value));
}

// `value` as T: bf16 and f16 round it to nearest even, by way of fp32.
template <class T, class C>
KEEL_HD T narrow(C value) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
  else return T(static_cast<float>(value));
}

}  // namespace keel
