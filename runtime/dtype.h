#pragma once
// The number types of a tensor, by name and as C++ types.

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "keel/runtime/error.h"
#include "keel/runtime/half.h"

namespace keel {

// u8 is also the boolean type. f64 has every CPU operation (gradient checks).
enum class DType : unsigned char { f32, bf16, f16, f64, i32, i64, u8 };
inline constexpr int kDTypeCount = 7;

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
// Reads "f32", "bf16", ...; an unknown name is an Error.
DType parse_dtype(std::string_view name);
inline bool is_floating(DType dtype) { return dtype <= DType::f64; }
std::ostream& operator<<(std::ostream& out, DType dtype);

template <class T>
struct TypeTag {
  using type = T;
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>) return DType::f16;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  else {
    static_assert(std::is_same_v<T, std::uint8_t>, "not an element type of keel");
    return DType::u8;
  }
}

// Sums of T are kept in Accumulator<T>: fp32 for the narrow floats, T itself for the wide ones.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;

// Calls f(TypeTag<C>{}) with the type in which elements of `dtype` are computed: double for f64, float for the other
// floats, std::int64_t for integers.
template <class F>
void visit_compute_type(DType dtype, F&& f) {
  if (dtype == DType::f64) f(TypeTag<double>{});
  else if (is_floating(dtype)) f(TypeTag<float>{});
  else f(TypeTag<std::int64_t>{});
}

// Calls f(TypeTag<T>{}) with the C++ type of `dtype`.
template <class F>
decltype(auto) visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(TypeTag<float>{});
    case DType::bf16: return f(TypeTag<bf16>{});
    case DType::f16: return f(TypeTag<f16>{});
    case DType::f64: return f(TypeTag<double>{});
    default: throw Error(concat("a floating-point dtype is needed, got ", dtype));
  }
}

template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32: return f(TypeTag<std::int32_t>{});
    case DType::i64: return f(TypeTag<std::int64_t>{});
    case DType::u8: return f(TypeTag<std::uint8_t>{});
    default: return visit_floating(dtype, static_cast<F&&>(f));
  }
}

// Calls f with i32 or i64, the dtypes of tokens, targets and positions.
template <class F>
decltype(auto) visit_index(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32: return f(TypeTag<std::int32_t>{});
    case DType::i64: return f(TypeTag<std::int64_t>{});
    default: throw Error(concat("an index dtype (i32, i64) is needed, got ", dtype));
  }
}

}  // namespace keel
