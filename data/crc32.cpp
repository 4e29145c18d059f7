#include "keel/data/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace keel {
namespace {

constexpr std::size_t kAtOnce = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kAtOnce>;

// Table k: what a byte becomes with k zero bytes behind it.
constexpr Tables make_tables() {
  Tables tables = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kAtOnce; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  static_assert(std::endian::native == std::endian::little);
  std::uint32_t crc = ~before;
  std::size_t at = 0;
  for (; at + kAtOnce <= bytes.size(); at += kAtOnce) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, kAtOnce);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < kAtOnce; ++k) crc ^= kTables[kAtOnce - 1 - k][(word >> (8 * k)) & 0xff];
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(bytes[at])) & 0xff];
  return ~crc;
}

}  // namespace keel
