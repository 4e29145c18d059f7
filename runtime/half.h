#pragma once
// bf16 and f16 as storage types: arithmetic happens in fp32, conversion rounds to nearest even.
//
// A GPU converts with an instruction of its own, which gives the same bits except for the payload of a NaN.

#include <bit>
#include <cstdint>

#include "keel/runtime/hd.h"

namespace keel {

// bfloat16: the upper half of an fp32.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  KEEL_HD explicit bf16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? 0x7fc0u : rounded);
#endif
  }
  KEEL_HD explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static KEEL_HD bf16 from_bits(std::uint16_t bits) {
    bf16 value;
    value.bits = bits;
    return value;
  }
};

// IEEE binary16. Branch-free, so that loops over it vectorise.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  // Normal results are rounded by an integer add that carries into the exponent; subnormal
  // ones by the fp32 adder, which aligns the mantissa to 2^-24 when 0.5 is added.
  KEEL_HD explicit f16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    std::uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to 65536 or more
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    bits = static_cast<std::uint16_t>(sign | half);
#endif
  }
  // The exponent is rebased by a multiplication, which is exact for subnormals too.
  KEEL_HD explicit operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const float rebased = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t finite = std::bit_cast<std::uint32_t>(rebased);
    const std::uint32_t word = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    return std::bit_cast<float>(word | (static_cast<std::uint32_t>(bits & 0x8000u) << 16));
#endif
  }
  static KEEL_HD f16 from_bits(std::uint16_t bits) {
    f16 value;
    value.bits = bits;
    return value;
  }
};

}  // namespace keel
