#include "keel/tokenizers/train_bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/error_of.h"
#include "tests/tokenizers/space_pre_tokenizer.h"

namespace keel {
namespace {

using keel::testing::error_of;
using keel::testing::SpacePreTokenizer;

std::vector<std::string> random_texts(unsigned seed, std::size_t count, std::size_t words) {
  std::mt19937 engine(seed);
  std::vector<std::string> vocabulary(200), texts(count);
  for (std::string& word : vocabulary)
    for (std::size_t size = 1 + engine() % 9; size > 0; --size) word += static_cast<char>('a' + engine() % 6);
  for (std::string& text : texts)
    for (std::size_t i = 0; i < words; ++i) text += vocabulary[engine() % 200 * (engine() % 200) / 200] + " ";
  return texts;
}

TrainedBpe trained(const std::vector<std::string>& texts, int threads, const BpeTraining& options) {
  BpeTrainer trainer(Context::create({.threads = threads}), std::make_shared<SpacePreTokenizer>(), options);
  for (const std::string& text : texts) trainer.feed(text);
  return trainer.train();
}

// Counts all pairs of all words again before every merge.
TrainedBpe naive_training(const std::vector<std::string>& texts, std::size_t size) {
  std::map<std::string, std::int64_t> words;
  for (const std::string& text : texts)
    for (std::size_t begin = 0, end; (end = text.find(' ', begin)) != std::string::npos; begin = end + 1)
      ++words[text.substr(begin, end - begin)];
  TrainedBpe result;
  std::map<std::string, std::size_t> numbers;
  const auto number_of = [&](const std::string& text) {
    const auto [found, is_new] = numbers.try_emplace(text, result.tokens.size());
    if (is_new) result.tokens.push_back(text);
    return found->second;
  };
  for (char c = 'a'; c <= 'f'; ++c) number_of(std::string(1, c));
  std::vector<std::pair<std::vector<std::size_t>, std::int64_t>> cut;
  for (const auto& [word, count] : words) {
    cut.emplace_back(std::vector<std::size_t>{}, count);
    for (const char c : word) cut.back().first.push_back(number_of(std::string(1, c)));
  }
  while (result.tokens.size() < size) {
    std::map<std::pair<std::size_t, std::size_t>, std::int64_t> pairs;
    for (const auto& [word, count] : cut)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
    if (pairs.empty()) break;
    auto best = pairs.begin();
    for (auto each = pairs.begin(); each != pairs.end(); ++each)
      if (each->second > best->second) best = each;
    const auto [first, second] = best->first;
    result.merges.emplace_back(result.tokens[first], result.tokens[second]);
    const std::size_t token = number_of(result.tokens[first] + result.tokens[second]);
    for (auto& [word, count] : cut)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != first || word[i + 1] != second) continue;
        word[i] = token;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
  }
  return result;
}

TEST(BpeTraining, MergesAsCountingAnewBeforeEveryMergeDoes) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const std::vector<std::string> texts = random_texts(seed, 5, 200);
    const TrainedBpe expected = naive_training(texts, 60);
    const TrainedBpe found = trained(texts, 1, {.vocabulary_size = 60, .all_bytes = false});
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.merges, expected.merges);
  }
}

TEST(BpeTraining, IsTheSameOnAnyNumberOfThreads) {
  const std::vector<std::string> texts = random_texts(6, 300, 1000);  // several chunks
  const TrainedBpe one = trained(texts, 1, {.vocabulary_size = 500});
  EXPECT_EQ(one.tokens.size(), 500u);
  for (const int threads : {2, 3}) {
    const TrainedBpe several = trained(texts, threads, {.vocabulary_size = 500});
    EXPECT_EQ(several.tokens, one.tokens);
    EXPECT_EQ(several.merges, one.merges);
  }
}

TEST(BpeTraining, TellsHowFarItIsAndStopsWhereItIsTold) {
  BpeTrainer trainer(Context::create({.threads = 1}), nullptr, {.vocabulary_size = 260});
  trainer.feed("abcabcabcabc");
  std::vector<std::int64_t> done;
  EXPECT_EQ(error_of([&] {
              trainer.train([&](std::int64_t at, std::int64_t all) {
                EXPECT_EQ(all, 260);
                done.push_back(at);
                if (done.size() == 2) throw Error("stopped");
              });
            }),
            "stopped");
  EXPECT_EQ(done, (std::vector<std::int64_t>{257, 258}));
}

TEST(BpeTraining, RefusesSizesThatMeanNothing) {
  const auto make = [](const BpeTraining& options) {
    return error_of([&] { BpeTrainer(Context::create({.threads = 1}), nullptr, options); });
  };
  EXPECT_EQ(make({.vocabulary_size = -1}), "training of BPE: a vocabulary of -1 tokens; 0 to 2^31 - 1 are possible");
  EXPECT_EQ(make({.longest_token = 1}), "training of BPE: the longest token has 1 characters; 0 (any) or at least 2");
}

}  // namespace
}  // namespace keel
