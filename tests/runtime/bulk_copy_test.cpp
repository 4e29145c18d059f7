// Copies past the caches have every byte, and change no other.

#include "keel/runtime/bulk_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace keel {
namespace {

TEST(BulkCopy, HasEveryByteAtAnyPlaceOfAnyLengthAndChangesNoOther) {
  constexpr std::size_t kRoom = 40, kLongest = 300;
  std::vector<std::byte> source(kRoom + kLongest);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(1 + i * i % 251);
  for (std::size_t begin = 0; begin < kRoom; begin += 3)
    for (std::size_t place = 0; place < kRoom; ++place)
      for (std::size_t size = 0; size <= kLongest; size += size < 70 ? 1 : 23) {
        std::vector<std::byte> target(kRoom + kLongest + kRoom), expected = target;
        if (size > 0) std::memcpy(expected.data() + place, source.data() + begin, size);
        copy_past_caches(std::span(source).subspan(begin, size), target.data() + place);
        ASSERT_TRUE(target == expected) << size << " bytes from " << begin << " to " << place;
      }
}

}  // namespace
}  // namespace keel
