#pragma once
// CRC-32, which Python's standard library has, too: it notices damage to files that scripts write.

#include <cstddef>
#include <cstdint>
#include <span>

#include "keel/runtime/language.h"

namespace keel {

// Of ISO 3309, as in gzip and PNG: polynomial 0xedb88320, reflected. `before`: the CRC of what comes before these
// bytes. By products without carry where the processor has them (Gopal and others, "Fast CRC computation for generic
// polynomials using PCLMULQDQ instruction", Intel 2009), else eight bytes at once by tables (Kounavis and Berry, "A
// systematic approach to building high performance software-based CRC generators", ISCC 2005).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace keel
