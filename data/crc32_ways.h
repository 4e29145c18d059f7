#pragma once
// Ways to the remainder that a CRC-32 is made of. Of crc32.cpp, and of tests that hold one against the other.

#include <cstddef>
#include <cstdint>
#include <span>

#include "keel/runtime/language.h"

namespace keel {

// The remainder of these bytes behind others whose remainder is `crc`.
std::uint32_t remainder_by_tables(std::span<const std::byte> bytes, std::uint32_t crc);

#if defined(__x86_64__)
// Likewise, of at least so many bytes, by a processor with PCLMULQDQ (multiplies_without_carry()).
inline constexpr std::size_t kLeastProducts = 64;
std::uint32_t remainder_by_products(std::span<const std::byte> bytes, std::uint32_t crc);
#endif

}  // namespace keel
