#include "keel/runtime/random.h"

#include <algorithm>
#include <cmath>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::size_t kBlocksAtOnce = 32;

void four_uniforms(const PhiloxWords& words, float* out) {
  for (std::size_t i = 0; i < 4; ++i) out[i] = to_uniform(words[i]);
}

void four_normals(const PhiloxWords& words, float* out) {
  const NormalPair low = to_normal(words[0], words[1]), high = to_normal(words[2], words[3]);
  out[0] = low.first;
  out[1] = low.second;
  out[2] = high.first;
  out[3] = high.second;
}

// Makes whole blocks of four in a buffer and copies the part that was asked for.
template <void (*four)(const PhiloxWords&, float*)>
void fill_stream(std::span<float> out, PhiloxKey key, std::uint64_t first) {
  constexpr std::size_t kCount = 4 * kBlocksAtOnce;
  float buffer[kCount];
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t at = first + done;
    for (std::size_t b = 0; b < kBlocksAtOnce; ++b) four(stream_block(key, at / 4 + b), buffer + 4 * b);
    const std::size_t skipped = at % 4;
    const std::size_t count = std::min(kCount - skipped, out.size() - done);
    std::copy_n(buffer + skipped, count, out.data() + done);
    done += count;
  }
}

}  // namespace

void fill_uniform(std::span<float> out, std::uint64_t seed, std::string_view name, std::uint64_t first) {
  fill_stream<four_uniforms>(out, key_of(seed, name), first);
}

void fill_normal(std::span<float> out, std::uint64_t seed, std::string_view name, std::uint64_t first) {
  fill_stream<four_normals>(out, key_of(seed, name), first);
}

RandomOrder::RandomOrder(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : n_(n), key_(to_key(mix64(mix64(seed ^ fnv1a64("order")) ^ epoch))) {
  KEEL_CHECK(n >= 1 && n <= std::uint64_t{1} << 62, "a random order needs between 1 and 2^62 elements, got ", n);
  rows_ = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  columns_ = (n + rows_ - 1) / rows_;
}

std::uint64_t RandomOrder::permute(std::uint64_t cell) const {
  std::uint64_t row = cell / columns_, column = cell % columns_;
  const auto draw = [&](std::uint64_t from, std::uint32_t round, std::uint64_t limit) {
    const PhiloxWords words =
        philox({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(from >> 32), round, 0}, key_);
    return random_below(std::uint64_t{words[0]} << 32 | words[1], limit);
  };
  for (std::uint32_t round = 0; round < 8; round += 2) {
    row = (row + draw(column, round, rows_)) % rows_;
    column = (column + draw(row, round + 1, columns_)) % columns_;
  }
  return row * columns_ + column;
}

std::uint64_t RandomOrder::operator[](std::uint64_t i) const {
  KEEL_CHECK(i < n_, "element ", i, " is outside a random order of ", n_);
  do i = permute(i);
  while (i >= n_);
  return i;
}

}  // namespace keel
