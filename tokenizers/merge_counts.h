#pragma once
// The merging half of BPE's training: words of numbers, whose most frequent pair becomes a number again and again.

#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Counts of pairs of numbers below 2^32.
class PairCounts {
 public:
  std::int64_t& operator[](std::uint64_t pair);

 private:
  struct Slot {
    std::uint64_t pair = kFree;
    std::int64_t count = 0;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  std::size_t place_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, half of them free at least
  std::size_t used_ = 0;
};

// Words and what is known of their pairs. It counts as the Tokenizers library does, with what is odd about it: a pair
// keeps its count when it has been merged, and where a merge makes a token that was there before, a pair may wait in
// the queue twice, each time with the words that were found that time.
class MergeCounts {
 public:
  struct Top {
    std::uint32_t first = 0, second = 0;
    std::int64_t count = 0;  // 0: no pair is left
  };

  // `longest`: characters of a token that is made of more than two; 0: any.
  explicit MergeCounts(std::int64_t longest) : longest_(longest) {}
  // All words first,
  void add_word(std::span<const std::uint32_t> tokens, std::uint64_t count);
  // then the characters of each token that there is.
  void begin(std::vector<std::int64_t> lengths);

  // The most frequent pair, of equal ones that of the lower numbers. Each call takes the pair away.
  Top top();
  // Makes `token` of the pair that top() gave, wherever it stands.
  void merge(std::uint32_t token);

 private:
  struct Word {
    std::uint64_t begin;  // in symbols_
    std::uint32_t size;
    std::int64_t count;
  };
  struct Entry {
    std::int64_t count;
    std::uint64_t pair;
    std::size_t words;  // in lists_
    bool operator<(const Entry& other) const { return count != other.count ? count < other.count : pair > other.pair; }
  };
  // What a merge changes at one neighbour of the pair, over all words.
  struct Side {
    std::vector<std::int64_t> old_count, new_count;  // by neighbour
    std::vector<std::vector<std::uint32_t>> words;   // that have the new pair
    std::vector<bool> is_noted;                      // in `changed`
    std::vector<std::uint32_t> changed;              // neighbours
    void note(std::uint32_t neighbour);
    void resize(std::size_t tokens);
  };

  void merge_word(std::uint32_t word, std::uint32_t token);
  void add_new(Side& side, std::uint32_t neighbour, std::uint32_t word, std::int64_t count);
  void push(std::uint64_t pair, std::vector<std::uint32_t> words);

  std::int64_t longest_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::uint32_t> symbols_;  // of all words
  std::vector<Word> words_;
  PairCounts counts_;
  std::priority_queue<Entry> queue_;
  std::vector<std::vector<std::uint32_t>> lists_;
  std::vector<std::size_t> free_lists_;
  Entry current_{};
  Side left_, right_;
};

}  // namespace keel
