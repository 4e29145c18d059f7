#pragma once
// Decimal numbers in texts, read to the nearest double.

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "keel/runtime/language.h"

namespace keel {

// The number that a text begins with, and how many bytes it has; 0: there is none.
struct TextNumber {
  double value = 0;
  std::size_t bytes = 0;
};

namespace number_text {

inline constexpr std::array<double, 23> kPowersOfTen = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                        1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

inline constexpr std::array<std::uint64_t, 8> kWholePowersOfTen = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};

// The library's way, for all that has more digits or a larger exponent. What is too small is 0; too large: infinite.
inline TextNumber read_slowly(std::string_view text) {
  TextNumber number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (error == std::errc::invalid_argument) return {};
  number.bytes = static_cast<std::size_t>(end - text.data());
  if (error == std::errc::result_out_of_range)
    number.value = std::strtod(std::string(text.substr(0, number.bytes)).c_str(), nullptr);
  return number;
}

// Digit by digit: texts that end soon, or have more digits.
inline TextNumber read_short(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* at = begin;
  const auto digit = [&] { return at != end && static_cast<unsigned char>(*at - '0') < 10; };
  const bool negative = at != end && *at == '-';
  if (negative) ++at;
  std::uint64_t mantissa = 0;
  const char* const first = at;
  for (; digit(); ++at) mantissa = 10 * mantissa + static_cast<std::uint64_t>(*at - '0');
  std::int64_t digits = at - first, exponent = 0;
  if (at != end && *at == '.') {
    const char* const behind_dot = ++at;
    for (; digit(); ++at) mantissa = 10 * mantissa + static_cast<std::uint64_t>(*at - '0');
    exponent = behind_dot - at;
    digits -= exponent;
  }
  const bool goes_on = at != end && (*at == 'e' || *at == 'E');
  // 19 digits fit in 64 bits.
  if (digits == 0 || digits > 19 || goes_on || mantissa > std::uint64_t{1} << 53 || exponent < -22)
    return read_slowly(text);
  const double value = static_cast<double>(mantissa) / kPowersOfTen[static_cast<std::size_t>(-exponent)];
  return {negative ? -value : value, static_cast<std::size_t>(at - begin)};
}

}  // namespace number_text

// The digits that eight bytes begin with, without a branch for each: what comes in every length would be mispredicted.
struct EightDigits {
  std::uint64_t value;
  unsigned count;
};
inline EightDigits read_eight_digits(const char* at) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, 8);
  bytes ^= 0x3030303030303030u;  // digits are 0 to 9, all else is more
  const std::uint64_t others = ((bytes + 0x7676767676767676u) | bytes) & 0x8080808080808080u;
  const unsigned count = others == 0 ? 8 : static_cast<unsigned>(std::countr_zero(others)) / 8;
  // In the upper bytes; what is shifted in stands for leading zeros. Then pairs, fours and all of them are joined.
  bytes = count == 0 ? 0 : bytes << (64 - 8 * count);
  bytes = 10 * bytes + (bytes >> 8);
  constexpr std::uint64_t kPairs = 0x000000ff000000ffu;
  return {((bytes & kPairs) * 0x000f424000000064u + ((bytes >> 16) & kPairs) * 0x0000271000000001u) >> 32, count};
}

// [-] digits [. digits] [e [+-] digits], with a digit on either side of the dot. Up to 2^53 and powers of ten up to
// 10^22 are doubles themselves, so that one product or quotient of them is rounded once (Clinger, "How to read floating
// point numbers accurately", PLDI 1990). `readable`: bytes from the text's first one on that may be read, whatever they
// are; where there are fewer than kNumberReach, the number is read digit by digit.
inline constexpr std::size_t kNumberReach = 18;  // a sign, a dot, 8 digits on each side
inline TextNumber read_number(std::string_view text, std::size_t readable) {
  if (readable < kNumberReach) return number_text::read_short(text);
  const char* at = text.data();
  const bool negative = *at == '-';
  at += negative ? 1 : 0;
  const EightDigits whole = read_eight_digits(at);
  at += whole.count;
  EightDigits fraction = {0, 0};
  if (*at == '.') {
    fraction = read_eight_digits(++at);
    at += fraction.count;
  }
  const unsigned digits = whole.count + fraction.count;
  const auto bytes = static_cast<std::size_t>(at - text.data());
  if (digits == 0 || whole.count == 8 || fraction.count == 8 || bytes > text.size() || (*at | 0x20) == 'e')
    return number_text::read_short(text);
  const double power = number_text::kPowersOfTen[fraction.count];
  const auto mantissa =
      static_cast<double>(whole.value * number_text::kWholePowersOfTen[fraction.count] + fraction.value);
  // The sign as a bit: a branch would be mispredicted every other time.
  const std::uint64_t sign = static_cast<std::uint64_t>(negative) << 63;
  const double value = std::bit_cast<double>(std::bit_cast<std::uint64_t>(mantissa / power) | sign);
  return {value, bytes};
}
inline TextNumber read_number(std::string_view text) { return read_number(text, text.size()); }

}  // namespace keel
