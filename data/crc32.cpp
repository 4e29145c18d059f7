#include "keel/data/crc32.h"

#include <array>
#include <bit>
#include <cstring>

#include "keel/data/crc32_ways.h"
#include "keel/runtime/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace keel {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320u;  // reflected: the lowest bit belongs to the highest power
constexpr std::size_t kAtOnce = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kAtOnce>;

// The remainder times x.
constexpr std::uint32_t times_x(std::uint32_t remainder) {
  return (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
}

// Table k: what a byte becomes with k zero bytes behind it.
constexpr Tables make_tables() {
  Tables tables = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kAtOnce; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t remainder_by_tables(std::span<const std::byte> bytes, std::uint32_t crc) {
  static_assert(std::endian::native == std::endian::little);
  std::size_t at = 0;
  for (; at + kAtOnce <= bytes.size(); at += kAtOnce) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, kAtOnce);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < kAtOnce; ++k) crc ^= kTables[kAtOnce - 1 - k][(word >> (8 * k)) & 0xff];
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(bytes[at])) & 0xff];
  return crc;
}

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLane = 16, kLanes = 4;
static_assert(kLane * kLanes == kLeastProducts);

// The remainder of x^power as a factor of reflected products, which come out one bit too low.
constexpr std::int64_t factor(int power) {
  std::uint32_t remainder = 0x80000000u;
  for (int i = 0; i < power; ++i) remainder = times_x(remainder);
  return std::int64_t{remainder} << 1;
}

[[gnu::target("pclmul")]] __m128i load_lane(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// 16 bytes that have the remainder of `lane` with as many bytes behind it as `factors` are made for, and of those in
// `next` behind that.
[[gnu::target("pclmul")]] __m128i fold(__m128i lane, __m128i factors, __m128i next) {
  const __m128i first = _mm_clmulepi64_si128(lane, factors, 0x00), second = _mm_clmulepi64_si128(lane, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

}  // namespace

[[gnu::target("pclmul")]] std::uint32_t remainder_by_products(std::span<const std::byte> bytes, std::uint32_t crc) {
  constexpr int kBits = 8 * static_cast<int>(kLane);
  const __m128i by_one = _mm_set_epi64x(factor(kBits - 32), factor(kBits + 32)),
                by_all = _mm_set_epi64x(factor(kLanes * kBits - 32), factor(kLanes * kBits + 32));
  const std::byte* at = bytes.data();
  __m128i lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = load_lane(at + i * kLane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  std::size_t left = bytes.size() - kLanes * kLane;
  for (at += kLanes * kLane; left >= kLanes * kLane; at += kLanes * kLane, left -= kLanes * kLane)
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = fold(lanes[i], by_all, load_lane(at + i * kLane));
  for (std::size_t i = 1; i < kLanes; ++i) lanes[0] = fold(lanes[0], by_one, lanes[i]);
  for (; left >= kLane; at += kLane, left -= kLane) lanes[0] = fold(lanes[0], by_one, load_lane(at));
  std::array<std::byte, kLane> folded;
  std::memcpy(folded.data(), lanes, kLane);
  return remainder_by_tables({at, left}, remainder_by_tables(folded, 0));
}
#endif

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_products = multiplies_without_carry();
  if (has_products && bytes.size() >= kLeastProducts) return ~remainder_by_products(bytes, ~before);
#endif
  return ~remainder_by_tables(bytes, ~before);
}

}  // namespace keel
