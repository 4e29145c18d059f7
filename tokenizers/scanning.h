#pragma once
// The parts that scanners of known expressions are composed of.

#include <cstdint>
#include <string_view>

#include "keel/tokenizers/character_classes.h"

namespace keel {

// A text that is scanned from left to right. Places are bytes; each function takes one where a character begins, or the
// text's end, and returns another.
class Scan {
 public:
  explicit Scan(std::string_view text)
      : text_(reinterpret_cast<const unsigned char*>(text.data())),
        size_(static_cast<std::uint32_t>(text.size())),
        classes_(CharacterClasses::table()),
        ascii_(classes_.of_ascii()) {}

  std::uint32_t size() const { return size_; }
  bool has(std::uint32_t at, char byte) const { return at < size_ && text_[at] == static_cast<unsigned char>(byte); }

  // The classes of the character at `at`, none at the end; `next` becomes where the one behind it begins.
  std::uint16_t classes(std::uint32_t at, std::uint32_t& next) const {
    next = at;
    if (at >= size_) return 0;
    next = at + 1;
    return text_[at] < 0x80 ? ascii_[text_[at]] : classes_beyond_ascii(at, next);
  }
  bool is(std::uint32_t at, std::uint16_t set) const {
    std::uint32_t next = 0;
    return (classes(at, next) & set) != 0;
  }

  // Behind the characters whose classes `holds` is true of.
  template <class Holds>
  std::uint32_t run_while(std::uint32_t at, const Holds& holds) const {
    for (std::uint32_t next = 0; at < size_; at = next) {
      while (text_[at] < 0x80) {
        if (!holds(ascii_[text_[at]])) return at;
        if (++at == size_) return at;
      }
      if (!holds(classes_beyond_ascii(at, next))) return at;
    }
    return at;
  }
  // [set]*: behind the characters of the set.
  std::uint32_t run(std::uint32_t at, std::uint16_t set) const {
    return run_while(at, [set](std::uint16_t each) { return (each & set) != 0; });
  }
  // [^set]*
  std::uint32_t run_outside(std::uint32_t at, std::uint16_t set) const {
    return run_while(at, [set](std::uint16_t each) { return (each & set) == 0; });
  }
  // [set--without]*
  std::uint32_t run(std::uint32_t at, std::uint16_t set, std::uint16_t without) const {
    return run_while(at, [=](std::uint16_t each) { return (each & set) != 0 && (each & without) == 0; });
  }
  // [set]{0,most}
  std::uint32_t run_at_most(int most, std::uint32_t at, std::uint16_t set) const {
    for (std::uint32_t next = 0; most > 0 && (classes(at, next) & set) != 0; --most) at = next;
    return at;
  }
  // [set]?
  std::uint32_t optional(std::uint32_t at, std::uint16_t set) const {
    std::uint32_t next = 0;
    return (classes(at, next) & set) != 0 ? next : at;
  }
  std::uint32_t optional_space(std::uint32_t at) const { return has(at, ' ') ? at + 1 : at; }
  // [bytes]*, of one-byte characters
  std::uint32_t run_of_bytes(std::uint32_t at, std::string_view bytes) const {
    while (at < size_ && bytes.find(static_cast<char>(text_[at])) != std::string_view::npos) ++at;
    return at;
  }

  // Behind the contraction that begins with an apostrophe at `at`; `at` where none does. In both cases of letters,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d), 's is U+017F as well.
  template <bool kAnyCase>
  std::uint32_t contraction(std::uint32_t at) const {
    if (!has(at, '\'')) return at;
    const unsigned first = letter<kAnyCase>(at + 1), second = letter<kAnyCase>(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    if (kAnyCase && first == 0xc5 && second == 0xbf) return at + 3;
    return at;
  }

  // \s*[\r\n]+ at white space: behind the last line break of the white space; `at` where it has none.
  std::uint32_t through_newlines(std::uint32_t at) const {
    std::uint32_t behind = at, next = 0;
    for (std::uint32_t i = at;; i = next) {
      const std::uint16_t set = classes(i, next);
      if ((set & character_class::kSpace) == 0) return behind;
      if ((set & character_class::kNewline) != 0) behind = next;
    }
  }
  // \s+(?!\S)|\s+ at white space: all of it at the end of the text, else all but the last character, which the next
  // match may take, unless there is only one. `at` where no white space is.
  std::uint32_t spaces(std::uint32_t at) const {
    const std::uint32_t end = run(at, character_class::kSpace);
    if (end == at || end == size_) return end;
    std::uint32_t last = end - 1;
    while ((text_[last] & 0xc0) == 0x80) --last;
    return last == at ? end : last;
  }

 private:
  // 0 at the end; a capital letter as a small one where case does not count.
  template <bool kAnyCase>
  unsigned letter(std::uint32_t at) const {
    if (at >= size_) return 0;
    const unsigned byte = text_[at];
    return kAnyCase && byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
  }
  // A character whose last bytes are missing is as U+FFFD is.
  std::uint16_t classes_beyond_ascii(std::uint32_t at, std::uint32_t& next) const {
    const auto rest = [&](std::uint32_t i) { return static_cast<char32_t>(text_[at + i] & 0x3f); };
    const unsigned first = text_[at];
    const std::uint32_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (bytes > size_ - at) {
      next = size_;
      return classes_.of(0xfffd);
    }
    next = at + bytes;
    if (bytes == 2) return classes_.of(((first & 0x1fu) << 6) | rest(1));
    if (bytes == 3) return classes_.of(((first & 0x0fu) << 12) | (rest(1) << 6) | rest(2));
    const char32_t character = ((first & 0x07u) << 18) | (rest(1) << 12) | (rest(2) << 6) | rest(3);
    return classes_.of(character < 0x110000 ? character : 0xfffd);
  }

  const unsigned char* text_;
  std::uint32_t size_;
  const CharacterClasses& classes_;
  const std::uint16_t* ascii_;
};

}  // namespace keel
