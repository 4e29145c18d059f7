#pragma once
// XXH3, a hash that notices damage to files. It is no protection against forgers.
//
// Y. Collet, "XXH3 hash algorithm": doc/xxhash_spec.md of https://github.com/Cyan4973/xxHash.

#include <cstddef>
#include <cstdint>
#include <span>

namespace keel {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

// XXH3 with 128 bits, seed 0 and the algorithm's own secret, of any number of bytes.
Hash128 xxh3(std::span<const std::byte> bytes);

}  // namespace keel
