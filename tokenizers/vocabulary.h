#pragma once
// Tokens by text and texts by token.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Numbers need not be dense: published vocabularies have holes. At most 2^31 tokens; memory is that of the texts,
// however large the numbers.
class Vocabulary {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Two texts of one number or one text twice is an Error that names both.
  explicit Vocabulary(std::vector<std::pair<std::string, std::uint32_t>> tokens);

  std::uint32_t find(std::string_view text) const;                  // kNone: it is no token
  std::optional<std::string_view> text(std::uint32_t token) const;  // none: a hole, or beyond the end
  std::int64_t size() const;                                        // one more than the largest number
  std::int64_t count() const;                                       // tokens there are

  // Calls f(text, number) for each, in the order of numbers.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t place = 0; place + 1 < begins_.size(); ++place) f(text_at(place), number_at(place));
  }

 private:
  struct Slot {
    std::uint32_t place = kNone;  // of the token in the order of numbers; kNone: a free slot
    std::uint32_t mark = 0;       // more of the text's hash
  };
  std::string_view text_at(std::size_t place) const;
  std::uint32_t number_at(std::size_t place) const;
  // The text's slot, or the free one that it would take.
  std::size_t slot_of(std::string_view text, std::uint64_t hash) const;

  std::string bytes_;                   // the texts in the order of their numbers
  std::vector<std::uint64_t> begins_;   // of each text, and the end
  std::vector<std::uint32_t> numbers_;  // of each text; empty: without holes
  std::vector<Slot> slots_;             // open addressing by text_hash(), a power of two
};

}  // namespace keel
