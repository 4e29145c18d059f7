#pragma once
// How often each word occurs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

class WordCounts {
 public:
  struct Word {
    std::uint64_t hash;   // text_hash() of it
    std::uint64_t count;  // times that it was added
    std::uint64_t begin;
    std::uint32_t size;
  };

  void add(std::string_view text, std::uint64_t hash, std::uint64_t count);
  // Those that were added, each once, in the order of their first time.
  const std::vector<Word>& words() const { return words_; }
  std::string_view text(const Word& word) const { return std::string_view(bytes_).substr(word.begin, word.size); }

 private:
  void grow();

  std::string bytes_;
  std::vector<Word> words_;
  std::vector<std::uint32_t> slots_;  // open addressing: one more than the place in words_; 0: free
};

}  // namespace keel
