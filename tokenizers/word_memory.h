#pragma once
// The tokens of words that were seen lately.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// A table of one size that any number of threads read and write at once. Who reads writes nothing, so that threads do
// not slow each other; a slot that another thread is writing is passed over (a sequence lock: Boehm, "Can seqlocks get
// along with programming language memory models?", MSPC 2012).
class WordMemory {
 public:
  WordMemory();
  // Appends the word's tokens if they are here. `hash` is text_hash(word).
  bool append(std::string_view word, std::uint64_t hash, std::vector<std::uint32_t>& out) const;
  // Keeps them in the place of an older word, unless both together are too long for a slot.
  void keep(std::string_view word, std::uint64_t hash, std::span<const std::uint32_t> tokens);

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 16;  // 4 MiB
  static constexpr std::size_t kNumbers = 7;                   // of 8 bytes: the word's, then two tokens each

  // A line of a cache. `state`: its turn (odd: it is being written), bytes of the word, tokens; 0: it is free.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> state{0};
    std::array<std::atomic<std::uint64_t>, kNumbers> numbers{};
  };
  static bool append_slot(const Slot& slot, std::string_view word, std::vector<std::uint32_t>& out);

  std::unique_ptr<Slot[]> slots_;  // in pairs: a word has two places
};

}  // namespace keel
