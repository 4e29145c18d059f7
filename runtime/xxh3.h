#pragma once
// XXH3, a hash that notices damage to files. It is no protection against forgers.
//
// Y. Collet, "XXH3 hash algorithm": doc/xxhash_spec.md of https://github.com/Cyan4973/xxHash.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

// XXH3 with 128 bits, seed 0 and the algorithm's own secret, of bytes that come in pieces.
class Xxh3 {
 public:
  Xxh3();
  void add(std::span<const std::byte> piece);
  // Of all that was added so far.
  Hash128 hash() const;

 private:
  static constexpr std::size_t kStripe = 64, kBlock = 1024;
  std::array<std::uint64_t, 8> sums_;
  std::array<std::byte, kStripe + kBlock> held_ = {};  // the stripe before the last block, then the last block
  std::size_t count_ = 0;                              // bytes of the last block
  std::uint64_t size_ = 0;                             // bytes of all
};

// Of one piece.
Hash128 xxh3(std::span<const std::byte> bytes);

// 32 digits.
std::string hexadecimal(const Hash128& hash);

}  // namespace keel
