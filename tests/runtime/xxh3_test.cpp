// XXH3 against the numbers of its reference implementation, libxxhash 0.8.1 (XXH3_128bits).

#include "keel/runtime/xxh3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace keel {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 1;
  for (std::byte& each : bytes) each = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

TEST(Xxh3, EqualsTheReferenceOnBothSidesOfEveryBorder) {
  struct Case {
    std::size_t size;
    std::uint64_t high, low;
  };
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  for (const auto& [size, high, low] :
       {Case{0, 0x99aa06d3014798d8, 0x6001c324468d497f}, Case{1, 0xbeff62be44bc9be4, 0x429e81bc6744101c},
        Case{3, 0x9dce807f4a9aaa56, 0x32dbb5c7774cc94f}, Case{4, 0x9772187e76395ea0, 0x5def542b8e8255bb},
        Case{8, 0x29a3277f85f28675, 0xda3ca77f4508da63}, Case{9, 0x57fc1cef528bd187, 0x85e53a642b77ffab},
        Case{16, 0xf8ae1a6f144fb00b, 0x4c6929dc65a535a0}, Case{17, 0x0ad716e7cfed9dc8, 0x43287186cdfec85d},
        Case{32, 0x3061e37048c04caa, 0xcf805526ea96182f}, Case{33, 0x7787bc63ca3818d6, 0x9fc38e5c19be3ef3},
        Case{128, 0x2b83749a25627c55, 0x6772960c7e09e15b}, Case{129, 0xd2c5fdf14399d768, 0xd15020c0444d308f},
        Case{240, 0xb2c3c2aa029b2279, 0xe16f608e11e76335}, Case{241, 0xe75e577a31d24834, 0xd6afac6f8fa85b01},
        Case{1024, 0x1ac8856c8b289d9a, 0xbb9f0c3761cdfd54}, Case{1025, 0x15379a00bb4cec98, 0x95edccc1adc4d895},
        Case{1 << 20, 0x63b839d1456b05c9, 0x6a1e48380a87d1af}}) {
    const Hash128 hash = xxh3({bytes.data(), size});
    EXPECT_EQ(hash.high, high) << size;
    EXPECT_EQ(hash.low, low) << size;
  }
}

// One number for all of them: the hash of the hashes, low halves first.
TEST(Xxh3, EqualsTheReferenceForEverySizeOfFourBlocks) {
  const std::vector<std::byte> bytes = some_bytes(4200);
  std::vector<std::byte> hashes(16 * 4201);
  for (std::size_t size = 0; size <= 4200; ++size) {
    const Hash128 hash = xxh3({bytes.data(), size});
    std::memcpy(hashes.data() + 16 * size, &hash.low, 8);
    std::memcpy(hashes.data() + 16 * size + 8, &hash.high, 8);
  }
  EXPECT_EQ(xxh3(hashes), (Hash128{0x78e629f522e3f140, 0xc0c38830992fc8db}));
}

TEST(Xxh3, PiecesHaveTheHashOfTheWhole) {
  const std::vector<std::byte> bytes = some_bytes(5000);
  for (const std::size_t size : {5, 240, 241, 1024, 1025, 2048, 2049, 2050, 2112, 4096, 5000})
    for (const std::size_t step : {1, 63, 64, 65, 1000, 1024, 1025, 3000}) {
      Xxh3 hash;
      for (std::size_t at = 0; at < size; at += step) hash.add(std::span(bytes).subspan(at, std::min(step, size - at)));
      EXPECT_EQ(hash.hash(), xxh3({bytes.data(), size})) << size << " bytes in pieces of " << step;
    }
}

TEST(Xxh3, EveryBitOfTheInputCounts) {
  for (const std::size_t size : {1, 7, 16, 100, 200, 300, 1100}) {
    std::vector<std::byte> bytes = some_bytes(size);
    const Hash128 hash = xxh3(bytes);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      const Hash128 other = xxh3(bytes);
      EXPECT_TRUE(other.low != hash.low && other.high != hash.high) << "bit " << bit << " of " << size << " bytes";
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

}  // namespace
}  // namespace keel
