#include "keel/tokenizers/word_memory.h"

#include <algorithm>

#include "keel/tokenizers/text_hash.h"

namespace keel {
namespace {

constexpr std::size_t numbers_of_word(std::size_t bytes) { return (bytes + 7) / 8; }
constexpr std::uint64_t turn_of(std::uint64_t state) { return state >> 32; }
constexpr std::size_t bytes_of(std::uint64_t state) { return (state >> 8) & 0xff; }
constexpr std::size_t tokens_of(std::uint64_t state) { return state & 0xff; }

std::uint64_t number_of_word(std::string_view word, std::size_t i) {
  return short_text_number(word.data() + 8 * i, std::min<std::size_t>(8, word.size() - 8 * i));
}

}  // namespace

WordMemory::WordMemory() : slots_(std::make_unique<Slot[]>(kSlots)) {}

bool WordMemory::append_slot(const Slot& slot, std::string_view word, std::vector<std::uint32_t>& out) {
  const std::uint64_t state = slot.state.load(std::memory_order_acquire);
  if (bytes_of(state) != word.size() || turn_of(state) % 2 != 0) return false;
  // Each load is an acquire: it comes before the second look at the state.
  const std::size_t words = numbers_of_word(word.size()), count = tokens_of(state);
  for (std::size_t i = 0; i < words; ++i)
    if (slot.numbers[i].load(std::memory_order_acquire) != number_of_word(word, i)) return false;
  std::array<std::uint32_t, 2 * kNumbers> tokens;
  for (std::size_t i = 0; 2 * i < count; ++i) {
    const std::uint64_t two = slot.numbers[words + i].load(std::memory_order_acquire);
    tokens[2 * i] = static_cast<std::uint32_t>(two);
    tokens[2 * i + 1] = static_cast<std::uint32_t>(two >> 32);
  }
  if (slot.state.load(std::memory_order_relaxed) != state) return false;
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

bool WordMemory::append(std::string_view word, std::uint64_t hash, std::vector<std::uint32_t>& out) const {
  if (word.size() > 8 * kNumbers || word.empty()) return false;
  const Slot* pair = &slots_[(hash >> 20) % (kSlots / 2) * 2];
  return append_slot(pair[0], word, out) || append_slot(pair[1], word, out);
}

void WordMemory::keep(std::string_view word, std::uint64_t hash, std::span<const std::uint32_t> tokens) {
  const std::size_t words = numbers_of_word(word.size());
  if (word.empty() || word.size() > 8 * kNumbers || words + (tokens.size() + 1) / 2 > kNumbers) return;
  Slot* pair = &slots_[(hash >> 20) % (kSlots / 2) * 2];
  // The one that was written less often: each in its turn.
  Slot& slot =
      turn_of(pair[1].state.load(std::memory_order_relaxed)) < turn_of(pair[0].state.load(std::memory_order_relaxed))
          ? pair[1]
          : pair[0];
  std::uint64_t state = slot.state.load(std::memory_order_relaxed);
  if (turn_of(state) % 2 != 0) return;
  constexpr std::uint64_t kTurn = std::uint64_t{1} << 32;
  if (!slot.state.compare_exchange_strong(state, state + kTurn, std::memory_order_acquire, std::memory_order_relaxed))
    return;
  for (std::size_t i = 0; i < words; ++i) slot.numbers[i].store(number_of_word(word, i), std::memory_order_release);
  for (std::size_t i = 0; 2 * i < tokens.size(); ++i) {
    const std::uint64_t second = 2 * i + 1 < tokens.size() ? tokens[2 * i + 1] : 0;
    slot.numbers[words + i].store(tokens[2 * i] | second << 32, std::memory_order_release);
  }
  const std::uint64_t turn = (turn_of(state) + 2) << 32;
  slot.state.store(turn | word.size() << 8 | tokens.size(), std::memory_order_release);
}

}  // namespace keel
