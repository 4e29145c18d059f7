#include "keel/runtime/xxh3.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

namespace keel {
namespace {

static_assert(std::endian::native == std::endian::little);  // as the algorithm reads its numbers

using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u64 kPrime32[] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D};
constexpr u64 kPrime64[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                            0x27D4EB2F165667C5};
constexpr u64 kPrimeMix[] = {0x165667919E3779F9, 0x9FB21C651E98DF25};

constexpr std::size_t kSecretBytes = 192;
alignas(64) constexpr unsigned char kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

template <class Number>
Number read(const void* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}
u64 read64(const std::byte* bytes) { return read<u64>(bytes); }
u64 secret64(std::size_t offset) { return read<u64>(kSecret + offset); }
u64 secret32(std::size_t offset) { return read<u32>(kSecret + offset); }

u64 swap_bytes(u64 x) { return __builtin_bswap64(x); }
u32 swap_bytes(u32 x) { return __builtin_bswap32(x); }

Hash128 product(u64 a, u64 b) {
  const auto wide = static_cast<unsigned __int128>(a) * b;
  return {static_cast<u64>(wide), static_cast<u64>(wide >> 64)};
}
u64 folded_product(u64 a, u64 b) {
  const Hash128 wide = product(a, b);
  return wide.low ^ wide.high;
}

// Every bit of a number changes every bit of the result: XXH3's way and that of XXH64.
u64 avalanche(u64 x) {
  x = (x ^ (x >> 37)) * kPrimeMix[0];
  return x ^ (x >> 32);
}
u64 avalanche64(u64 x) {
  x = (x ^ (x >> 33)) * kPrime64[1];
  x = (x ^ (x >> 29)) * kPrime64[2];
  return x ^ (x >> 32);
}

Hash128 hash_of_nothing() {
  return {avalanche64(secret64(64) ^ secret64(72)), avalanche64(secret64(80) ^ secret64(88))};
}

Hash128 hash_to_3(const std::byte* in, std::size_t size) {
  const auto byte = [&](std::size_t i) { return static_cast<u32>(in[i]); };
  const u32 low = byte(0) << 16 | byte(size / 2) << 24 | byte(size - 1) | static_cast<u32>(size) << 8;
  const u32 high = std::rotl(swap_bytes(low), 13);
  return {avalanche64(low ^ secret32(0) ^ secret32(4)), avalanche64(high ^ secret32(8) ^ secret32(12))};
}

Hash128 hash_to_8(const std::byte* in, std::size_t size) {
  const u64 input = read<u32>(in) + (u64{read<u32>(in + size - 4)} << 32);
  Hash128 mixed = product(input ^ secret64(16) ^ secret64(24), kPrime64[0] + 4 * size);
  mixed.high += mixed.low << 1;
  mixed.low ^= mixed.high >> 3;
  mixed.low = (mixed.low ^ (mixed.low >> 35)) * kPrimeMix[1];
  mixed.low ^= mixed.low >> 28;
  return {mixed.low, avalanche(mixed.high)};
}

Hash128 hash_to_16(const std::byte* in, std::size_t size) {
  const u64 first = read64(in), last = read64(in + size - 8);
  Hash128 mixed = product(first ^ last ^ secret64(32) ^ secret64(40), kPrime64[0]);
  mixed.low += u64{size - 1} << 54;
  const u64 keyed = last ^ secret64(48) ^ secret64(56);
  mixed.high += keyed + static_cast<u32>(keyed) * (kPrime32[1] - 1);
  mixed.low ^= swap_bytes(mixed.high);
  const Hash128 result = product(mixed.low, kPrime64[1]);
  return {avalanche(result.low), avalanche(result.high + mixed.high * kPrime64[1])};
}

// 32 bytes into `sum`: 16 at each of two places.
void mix(Hash128& sum, const std::byte* a, const std::byte* b, std::size_t secret) {
  const auto mix_16 = [](const std::byte* in, std::size_t offset) {
    return folded_product(read64(in) ^ secret64(offset), read64(in + 8) ^ secret64(offset + 8));
  };
  sum.low = (sum.low + mix_16(a, secret)) ^ (read64(b) + read64(b + 8));
  sum.high = (sum.high + mix_16(b, secret + 16)) ^ (read64(a) + read64(a + 8));
}

Hash128 finish(const Hash128& sum, std::size_t size) {
  const u64 high = sum.low * kPrime64[0] + sum.high * kPrime64[3] + size * kPrime64[1];
  return {avalanche(sum.low + sum.high), 0 - avalanche(high)};
}

Hash128 hash_to_128(const std::byte* in, std::size_t size) {
  Hash128 sum = {size * kPrime64[0], 0};
  for (std::size_t pair = (size - 1) / 32 + 1; pair-- > 0;)
    mix(sum, in + 16 * pair, in + size - 16 * (pair + 1), 32 * pair);
  return finish(sum, size);
}

Hash128 hash_to_240(const std::byte* in, std::size_t size) {
  Hash128 sum = {size * kPrime64[0], 0};
  for (std::size_t at = 0; at < 128; at += 32) mix(sum, in + at, in + at + 16, at);
  sum = {avalanche(sum.low), avalanche(sum.high)};
  for (std::size_t at = 128; at + 32 <= size; at += 32) mix(sum, in + at, in + at + 16, at - 128 + 3);
  mix(sum, in + size - 16, in + size - 32, 103);
  return finish(sum, size);
}

// Longer inputs are read in stripes of 64 bytes; after a block of 16 of them, which uses up the secret, the sums are
// scrambled.
constexpr std::size_t kStripeBytes = 64;
constexpr std::size_t kBlockBytes = (kSecretBytes - kStripeBytes) / 8 * kStripeBytes;
using Sums = std::array<u64, 8>;

// Stripes of which each takes the secret 8 bytes further on. A number counts at its neighbour's place, where it gets
// once for all stripes, so that each of these is but sums of eight places.
void add_stripes(Sums& sums, const std::byte* in, std::size_t count, std::size_t secret = 0) {
  Sums products = {}, values = {};
  for (std::size_t stripe = 0; stripe < count; ++stripe)
    for (std::size_t i = 0; i < 8; ++i) {
      const u64 value = read64(in + kStripeBytes * stripe + 8 * i), keyed = value ^ secret64(secret + 8 * (stripe + i));
      products[i] += (keyed & 0xffffffff) * (keyed >> 32);
      values[i] += value;
    }
  for (std::size_t i = 0; i < 8; ++i) sums[i] += products[i] + values[i ^ 1];
}

void scramble(Sums& sums) {
  for (std::size_t i = 0; i < 8; ++i)
    sums[i] = (sums[i] ^ (sums[i] >> 47) ^ secret64(kSecretBytes - kStripeBytes + 8 * i)) * kPrime32[0];
}

u64 merge(const Sums& sums, std::size_t secret, u64 start) {
  for (std::size_t i = 0; i < 4; ++i)
    start += folded_product(sums[2 * i] ^ secret64(secret + 16 * i), sums[2 * i + 1] ^ secret64(secret + 16 * i + 8));
  return avalanche(start);
}

// Whole blocks, of which none is the last.
void add_blocks(Sums& sums, const std::byte* blocks, std::size_t count) {
  Sums here = sums;
  for (std::size_t i = 0; i < count; ++i) {
    add_stripes(here, blocks + kBlockBytes * i, kBlockBytes / kStripeBytes);
    scramble(here);
  }
  sums = here;
}

}  // namespace

Xxh3::Xxh3()
    : sums_{kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2], kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]} {}

void Xxh3::add(std::span<const std::byte> piece) {
  static_assert(kBlock == kBlockBytes && kStripe == kStripeBytes);
  std::byte* const block = held_.data() + kStripe;
  while (!piece.empty()) {
    if (count_ == kBlock) {  // not the last one
      add_blocks(sums_, block, 1);
      std::memcpy(held_.data(), block + kBlock - kStripe, kStripe);
      count_ = 0;
    }
    // Nor are these, which are read where they lie.
    if (const std::size_t blocks = (piece.size() - 1) / kBlock; count_ == 0 && blocks > 0) {
      add_blocks(sums_, piece.data(), blocks);
      std::memcpy(held_.data(), piece.data() + blocks * kBlock - kStripe, kStripe);
      size_ += blocks * kBlock;
      piece = piece.subspan(blocks * kBlock);
    }
    const std::size_t taken = std::min(kBlock - count_, piece.size());
    std::memcpy(block + count_, piece.data(), taken);
    count_ += taken;
    size_ += taken;
    piece = piece.subspan(taken);
  }
}

Hash128 Xxh3::hash() const {
  const std::byte* const block = held_.data() + kStripe;
  if (size_ == 0) return hash_of_nothing();
  if (size_ <= 3) return hash_to_3(block, count_);
  if (size_ <= 8) return hash_to_8(block, count_);
  if (size_ <= 16) return hash_to_16(block, count_);
  if (size_ <= 128) return hash_to_128(block, count_);
  if (size_ <= 240) return hash_to_240(block, count_);
  Sums sums = sums_;
  // The last stripe is taken apart, even where it is a whole one, and may begin in the block before.
  add_stripes(sums, block, (count_ - 1) / kStripe);
  add_stripes(sums, block + count_ - kStripe, 1, kSecretBytes - kStripe - 7);
  return {merge(sums, 11, size_ * kPrime64[0]), merge(sums, kSecretBytes - kStripe - 11, ~(size_ * kPrime64[1]))};
}

Hash128 xxh3(std::span<const std::byte> bytes) {
  Xxh3 hash;
  hash.add(bytes);
  return hash.hash();
}

std::string hexadecimal(const Hash128& hash) {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

}  // namespace keel
