#pragma once
// Rounding up or down at random, so that what many small steps add is right on average: for weights kept in bf16 or
// f16 alone.
//
// A number between two neighbours goes to either with a probability that falls with its distance, so the expected
// result is the number itself; what the dtype holds exactly stays. Gupta et al. 2015, "Deep learning with limited
// numerical precision". The draw of an element depends on (seed, step, element) alone.

#include "keel/runtime/half.h"
#include "keel/runtime/random.h"

namespace keel {

// The part of the key that the host knows, and the key of a step. Element i is element i of that key's stream.
constexpr std::uint64_t rounding_seed(std::uint64_t seed) { return mix64(seed ^ fnv1a64("rounding")); }
KEEL_HD constexpr PhiloxKey rounding_key(std::uint64_t rounding_seed, std::int64_t step) {
  return to_key(mix64(rounding_seed ^ static_cast<std::uint64_t>(step)));
}

template <class T>
KEEL_HD T round_stochastically(float value, std::uint32_t word);

// The random bits are added below the last one that stays, and carry into it as often as they should.
template <>
KEEL_HD inline bf16 round_stochastically<bf16>(float value, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bf16(value);  // inf and NaN
  return bf16::from_bits(static_cast<std::uint16_t>((bits + (word >> 16)) >> 16));
}

template <>
KEEL_HD inline f16 round_stochastically<f16>(float value, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return f16(value);
  if (magnitude >= 0x38800000u)  // normal in f16: 13 bits go
    return f16(std::bit_cast<float>((bits + (word >> 19)) & ~0x1fffu));
  // Subnormal: a multiple of 2^-24, which is what the bits of an f16 count there.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
  const auto below = static_cast<std::uint32_t>(scaled);
  const std::uint32_t up = to_uniform(word) < scaled - static_cast<float>(below) ? 1 : 0;
  return f16::from_bits(static_cast<std::uint16_t>(sign | (below + up)));
}

}  // namespace keel
