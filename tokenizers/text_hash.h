#pragma once
// A hash of short texts for tables in memory: products of 64 bits, whose halves are folded together. It differs between
// machines and says nothing to anybody else.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

inline std::uint64_t mixed_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide wide = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
}

// Up to 8 bytes as a number, zeros behind them.
inline std::uint64_t short_text_number(const char* bytes, std::size_t size) {
  const auto number = [&]<class T>(T value, std::size_t at) {
    std::memcpy(&value, bytes + at, sizeof value);
    return std::uint64_t{value};
  };
  if (size >= 8) return number(std::uint64_t{}, 0);
  if (size >= 4) return number(std::uint32_t{}, 0) | number(std::uint32_t{}, size - 4) << 8 * (size - 4);
  if (size >= 2) return number(std::uint16_t{}, 0) | number(std::uint16_t{}, size - 2) << 8 * (size - 2);
  return size == 1 ? number(std::uint8_t{}, 0) : 0;
}

inline std::uint64_t text_hash(std::string_view text) {
  constexpr std::uint64_t kOdd[] = {0x9e3779b97f4a7c15, 0xd1342543de82ef95, 0xaf251af3b0f025b5};
  std::uint64_t hash = (text.size() + 1) * kOdd[0];
  while (text.size() > 8) {
    hash = mixed_product(hash ^ short_text_number(text.data(), 8), kOdd[1]);
    text.remove_prefix(8);
  }
  return mixed_product(hash ^ short_text_number(text.data(), text.size()), kOdd[2]);
}

}  // namespace keel
