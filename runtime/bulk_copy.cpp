#include "keel/runtime/bulk_copy.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace keel {

#ifdef __AVX__
void copy_past_caches(std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t kVector = sizeof(__m256i), kLine = 2 * kVector;
  const std::size_t before = (kVector - reinterpret_cast<std::uintptr_t>(to) % kVector) % kVector;
  const std::size_t head = std::min(before, from.size());
  std::memcpy(to, from.data(), head);
  std::size_t at = head;
  for (; from.size() - at >= kLine; at += kLine) {
    const auto* source = reinterpret_cast<const __m256i*>(from.data() + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    const __m256i first = _mm256_loadu_si256(source), second = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, first);
    _mm256_stream_si256(target + 1, second);
  }
  std::memcpy(to + at, from.data() + at, from.size() - at);
  _mm_sfence();  // such stores come in no order with those that tell of them
}
#else
void copy_past_caches(std::span<const std::byte> from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }
#endif

}  // namespace keel
