#include "formats.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <limits>

namespace keel::cli {
namespace {

template <class T>
double value_of_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  else return static_cast<double>(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(bits))));
}

// The largest bits for which `holds`, which is true of the smaller ones of a T without a sign.
template <class T, class Predicate>
std::uint64_t last_bits(const Predicate& holds) {
  std::uint64_t low = 0, high = (std::uint64_t{1} << (8 * sizeof(T) - 1)) - 1;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (holds(value_of_bits<T>(middle))) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Numbers without a sign are in the order of their bits.
template <class T>
NumberFormat read_format() {
  NumberFormat format;
  format.largest = value_of_bits<T>(last_bits<T>([](double x) { return std::isfinite(x); }));
  const std::uint64_t one = last_bits<T>([](double x) { return x <= 1; });
  format.gap = value_of_bits<T>(one + 1) - value_of_bits<T>(one);
  format.significant_bits = 1 - std::ilogb(format.gap);
  format.smallest = value_of_bits<T>(1);
  // Below it the last bit is worth the smallest number; there the gap is that share of the number.
  format.smallest_normal = format.smallest / format.gap;
  return format;
}

// "6.10352e-05 (2^-14)"
std::string power_of_two(double x) { return fmt::format("{:.6g} (2^{})", x, std::ilogb(x)); }

constexpr std::string_view kFloatingText = R"(# What numbers can hold

The number types of tensors, as keel's own conversions have them (`runtime/half.h`, `runtime/dtype.h`). `keel docs formats`
prints this page.

A number is rounded to the nearest one that its type has, of two that are equally near to the one whose last bit is 0.
What lies above the largest by half the gap before it or more becomes infinite, and what is not above half the smallest
becomes 0. From the smallest normal number on, numbers have all significant bits; below it they lie as far apart as the
smallest one from 0.

| dtype | bytes | significant bits | largest | smallest normal | smallest | from 1 to the next |
|---|---|---|---|---|---|---|
)";

constexpr std::string_view kWholeText = R"(
In names of strategies fp32 is `f32`, and fp16 is `f16`.

Whole numbers are exact:

| dtype | bytes | lowest | highest |
|---|---|---|---|
)";

}  // namespace

NumberFormat format_of(DType dtype) {
  return visit_floating(dtype, [](auto tag) { return read_format<typename decltype(tag)::type>(); });
}

std::string formats_reference() {
  std::string floating(kFloatingText), whole(kWholeText);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (is_floating(dtype)) {
      const NumberFormat format = format_of(dtype);
      floating += fmt::format("| {} | {} | {} | {:.6g} | {} | {} | {} |\n", name_of(dtype), size_of(dtype),
                              format.significant_bits, format.largest, power_of_two(format.smallest_normal),
                              power_of_two(format.smallest), power_of_two(format.gap));
      continue;
    }
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_integral_v<T>)
        whole += fmt::format("| {} | {} | {} | {} |\n", name_of(dtype), size_of(dtype),
                             std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max());
    });
  }
  return floating + whole;
}

}  // namespace keel::cli
