#pragma once
// New characters counted against old ones, as the Tokenizers library does: by that count, not by which character a new
// one was made of, it says where a character came from.

#include <cstddef>
#include <string>
#include <string_view>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/rewriting_normalizer.h"

namespace keel {

struct CountedCharacter {
  char32_t character = 0;
  // 0: stands for the next old character. -n: for that and the n behind it. 1: for none; it came to those before it.
  int change = 0;
};

// Writes them for the old characters from `at` on.
template <class Output>
class CountedChanges {
 public:
  CountedChanges(Output& output, std::size_t at) : output_(output), at_(at) {}

  void put(const CountedCharacter& made) {
    bytes_.clear();
    append_utf8(bytes_, made.character);
    if (!output_.keeps_origins()) {
      output_.insert(bytes_);
    } else if (made.change > 0) {
      output_.replace(at_, at_, bytes_);
    } else {
      const std::size_t end = behind(at_);
      output_.replace(at_, end, bytes_);
      at_ = end;
      skip(-made.change);
    }
  }

  // The next old characters are gone.
  void skip(int characters) {
    const std::size_t begin = at_;
    for (int i = 0; i < characters; ++i) at_ = behind(at_);
    output_.replace(begin, at_, "");
  }

 private:
  std::size_t behind(std::size_t at) const {
    const std::string_view text = output_.text();
    if (at == text.size()) return at;
    do { ++at; } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
    return at;
  }

  Output& output_;
  std::size_t at_;
  std::string bytes_;
};

}  // namespace keel
