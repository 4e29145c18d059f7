#include "keel/tokenizers/word_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "keel/tokenizers/text_hash.h"

namespace {

using keel::text_hash;
using keel::WordMemory;
using Ids = std::vector<std::uint32_t>;

// What a word's tokens are, by the word alone.
Ids tokens_of(const std::string& word) {
  return Ids(1 + text_hash(word) % 5, static_cast<std::uint32_t>(text_hash(word)));
}

TEST(WordMemory, HasWhatItKeepsAndNothingElse) {
  WordMemory memory;
  Ids found = {7};
  EXPECT_FALSE(memory.append("word", text_hash("word"), found));
  memory.keep("word", text_hash("word"), Ids{1, 2, 3});
  EXPECT_TRUE(memory.append("word", text_hash("word"), found));
  EXPECT_EQ(found, (Ids{7, 1, 2, 3}));
  EXPECT_FALSE(memory.append("worm", text_hash("word"), found));  // one hash, other words
  EXPECT_FALSE(memory.append("wor", text_hash("word"), found));
  EXPECT_EQ(found.size(), 4u);
}

TEST(WordMemory, KeepsWhatFitsIntoALineOfACache) {
  WordMemory memory;
  for (std::size_t bytes = 1; bytes <= 64; ++bytes)
    for (std::size_t count = 0; count <= 16; ++count) {
      const std::string word = std::string(bytes, 'w') + "#";
      Ids tokens(count), found;
      for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::uint32_t>(1000 * i + count);
      memory.keep(word, text_hash(word) + (count << 20), tokens);
      const bool fits = (word.size() + 7) / 8 + (count + 1) / 2 <= 7;
      EXPECT_EQ(memory.append(word, text_hash(word) + (count << 20), found), fits) << bytes << ' ' << count;
      EXPECT_EQ(found, fits ? tokens : Ids{});
    }
}

TEST(WordMemory, ForgetsTheOlderOfTwoWordsForAThird) {
  WordMemory memory;
  for (const char* word : {"a", "b", "c"}) memory.keep(word, 0, Ids{5});
  Ids found;
  EXPECT_FALSE(memory.append("a", 0, found));
  EXPECT_TRUE(memory.append("b", 0, found));
  EXPECT_TRUE(memory.append("c", 0, found));
}

TEST(WordMemory, NeverMixesWordsThatThreadsWriteAtOnce) {
  WordMemory memory;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; i < 20000; ++i) {
        const std::string word = std::string(1 + i % 9, 'x') + std::to_string((i * 7 + thread) % 13);
        const std::uint64_t place = i % 2;  // two pairs of slots for all words
        Ids found;
        if (!memory.append(word, place << 20, found)) memory.keep(word, place << 20, tokens_of(word));
        else if (found != tokens_of(word)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
