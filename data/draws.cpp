#include "keel/data/draws.h"

#include "keel/runtime/error.h"

namespace keel {

std::int64_t draw_below(std::int64_t bound, PhiloxKey key, std::int64_t step, std::int64_t row, std::uint32_t attempt) {
  KEEL_CHECK(bound >= 1, "a number below ", bound, " cannot be drawn");
  const PhiloxWords words = philox({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32),
                                    static_cast<std::uint32_t>(row), attempt},
                                   key);
  const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
  return static_cast<std::int64_t>(random_below(bits, static_cast<std::uint64_t>(bound)));
}

std::int64_t epoch_element(std::int64_t index, std::int64_t size, std::uint64_t seed) {
  KEEL_CHECK(index >= 0 && size >= 1, "element ", index, " of epochs of ", size, " does not exist");
  const RandomOrder order(static_cast<std::uint64_t>(size), seed, static_cast<std::uint64_t>(index / size));
  return static_cast<std::int64_t>(order[static_cast<std::uint64_t>(index % size)]);
}

}  // namespace keel
