// Laws of models, on random vocabularies and pieces, against slow references.

#include "keel/tokenizers/token_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/error_of.h"

namespace keel {
namespace {

using keel::testing::error_of;
using Merges = std::vector<std::pair<std::string, std::string>>;
using Numbered = std::vector<std::pair<std::string, std::uint32_t>>;

class Draws {
 public:
  explicit Draws(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t end) { return engine_() % end; }
  std::string text(std::string_view characters, std::size_t size) {
    std::string text(size, ' ');
    for (char& c : text) c = characters[below(characters.size())];
    return text;
  }

 private:
  std::mt19937 engine_;
};

struct BpeParts {
  Numbered tokens;
  Merges merges;
};

BpeParts random_bpe(Draws& draws) {
  BpeParts parts;
  std::map<std::string, std::uint32_t> numbers;
  std::vector<std::string> texts;
  const auto add = [&](const std::string& text) {
    if (!numbers.try_emplace(text, texts.size()).second) return;
    parts.tokens.emplace_back(text, texts.size());
    texts.push_back(text);
  };
  for (const char* character : {"a", "b", "c", "d"}) add(character);
  for (int i = 0; i < 60; ++i) {
    const std::string first = texts[draws.below(texts.size())], second = texts[draws.below(texts.size())];
    if (first.size() + second.size() > 12 ||
        std::ranges::find(parts.merges, std::pair(first, second)) != parts.merges.end())
      continue;
    add(first + second);
    parts.merges.emplace_back(first, second);
  }
  return parts;
}

// Rank by rank: the first place of the lowest rank is merged, until there is none.
std::vector<std::string> naive_bpe(const std::string& piece, const Merges& merges) {
  std::vector<std::string> tokens;
  for (const char c : piece) tokens.emplace_back(1, c);
  for (;;) {
    std::size_t best = merges.size(), place = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto rank =
          static_cast<std::size_t>(std::ranges::find(merges, std::pair(tokens[i], tokens[i + 1])) - merges.begin());
      if (rank < best) {
        best = rank;
        place = i;
      }
    }
    if (best == merges.size()) return tokens;
    tokens[place] += tokens[place + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

std::vector<std::string> texts_of(const TokenModel& model, const std::string& piece) {
  std::vector<PieceToken> tokens;
  model.tokenize(piece, tokens);
  std::vector<std::string> texts;
  for (const PieceToken& token : tokens) {
    texts.push_back(piece.substr(token.bytes.begin, token.bytes.size()));
    EXPECT_EQ(model.vocabulary().text(token.id), texts.back());
  }
  return texts;
}

TEST(Bpe, MergesPiecesOfEveryLengthAsRankByRankDoes) {
  Draws draws(1);
  for (int round = 0; round < 20; ++round) {
    const BpeParts parts = random_bpe(draws);
    const TokenModelPtr model = token_models::bpe(Vocabulary(parts.tokens), parts.merges, {});
    for (const std::size_t size : {1, 2, 3, 7, 20, 95, 96, 97, 98, 200}) {
      const std::string piece = draws.text("abcd", size);
      EXPECT_EQ(texts_of(*model, piece), naive_bpe(piece, parts.merges));
    }
  }
}

TEST(Bpe, CutsAMillionBytesInOnePiece) {
  Draws draws(2);
  const BpeParts parts = random_bpe(draws);
  const TokenModelPtr model = token_models::bpe(Vocabulary(parts.tokens), parts.merges, {});
  const std::string piece = draws.text("abcd", 1000000);
  std::string joined;
  for (const std::string& text : texts_of(*model, piece)) joined += text;
  EXPECT_EQ(joined, piece);
}

TEST(Bpe, GivesEveryThreadTheSameIdsThatTokenizeGives) {
  Draws draws(3);
  const BpeParts parts = random_bpe(draws);
  const TokenModelPtr model = token_models::bpe(Vocabulary(parts.tokens), parts.merges, {});
  std::vector<std::string> pieces;
  for (int i = 0; i < 2000; ++i) pieces.push_back(draws.text("abcd", 1 + draws.below(60)));
  std::vector<std::uint32_t> expected;
  for (const std::string& piece : pieces) {
    std::vector<PieceToken> tokens;
    model->tokenize(piece, tokens);
    for (const PieceToken& token : tokens) expected.push_back(token.id);
  }
  std::vector<std::vector<std::uint32_t>> found(4);
  std::vector<std::thread> threads;
  for (auto& ids : found)
    threads.emplace_back([&ids, &model, &pieces] {
      for (const std::string& piece : pieces) model->append_ids(piece, ids);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Bpe, SaysWhichMergeNeedsATokenThatIsNotThere) {
  const auto make = [](const Merges& merges, const token_models::BpeOptions& options) {
    return error_of([&] { token_models::bpe(Vocabulary({{"a", 0}, {"b", 1}, {"ab", 2}}), merges, options); });
  };
  EXPECT_EQ(make({{"a", "b"}, {"b", "a"}}, {}),
            "BPE: merge 2 (\"b\" and \"a\") needs the token \"ba\", which the vocabulary does not have");
  EXPECT_EQ(make({{"a", "c"}}, {}),
            "BPE: merge 1 (\"a\" and \"c\") needs the token \"c\", which the vocabulary does not have");
  EXPECT_EQ(make({{"a", "b"}}, {.continuing_prefix = "##"}),
            "BPE: merge 1 (\"a\" and \"b\"): the second does not begin with the prefix \"##\"");
  const TokenModelPtr model = token_models::bpe(Vocabulary({{"a", 0}}), {}, {.unknown = "<unk>"});
  std::vector<std::uint32_t> ids;
  EXPECT_EQ(error_of([&] { model->append_ids("ax", ids); }),
            "BPE: the unknown token \"<unk>\" is not in the vocabulary, and \"x\" needs it");
}

// All cuts into tokens; of the best sums, the one whose last token is longest, and so on to the front.
std::pair<double, std::vector<std::string>> naive_unigram(const std::string& piece,
                                                          const std::map<std::string, double>& scores) {
  std::vector<std::pair<double, std::vector<std::string>>> best(piece.size() + 1, {-1e300, {}});
  best[0].first = 0;
  for (std::size_t end = 1; end <= piece.size(); ++end)
    for (std::size_t begin = 0; begin < end; ++begin) {
      const auto found = scores.find(piece.substr(begin, end - begin));
      if (found == scores.end() || best[begin].first + found->second <= best[end].first) continue;
      best[end] = best[begin];
      best[end].first += found->second;
      best[end].second.push_back(found->first);
    }
  return best.back();
}

TEST(Unigram, FindsTheCutOfTheHighestSum) {
  Draws draws(4);
  for (int round = 0; round < 20; ++round) {
    std::map<std::string, double> scores = {{"a", -1}, {"b", -2}, {"c", -3}};
    for (int i = 0; i < 30; ++i)
      scores[draws.text("abc", 1 + draws.below(5))] = -static_cast<double>(draws.below(40)) / 8;
    const TokenModelPtr model =
        token_models::unigram(std::vector<std::pair<std::string, double>>(scores.begin(), scores.end()), {});
    for (const std::size_t size : {1, 2, 5, 30, 126, 127, 128, 129, 300}) {
      const std::string piece = draws.text("abc", size);
      EXPECT_EQ(texts_of(*model, piece), naive_unigram(piece, scores).second);
    }
  }
}

TEST(Unigram, SaysWhatIsUnknownWhereItHasNoUnknownToken) {
  const TokenModelPtr model = token_models::unigram({{"a", -1}}, {});
  std::vector<std::uint32_t> ids;
  EXPECT_EQ(error_of([&] { model->append_ids("aé", ids); }),
            "Unigram: \"é\" is no token, and the model has no unknown token");
  EXPECT_EQ(error_of([] {
              token_models::unigram({{"a", -1}}, {.unknown = 1});
            }),
            "Unigram: the unknown token is 1, but the vocabulary has 1 tokens");
}

TEST(WordPiece, TakesTheLongestTokenAgainAndAgain) {
  Draws draws(5);
  for (int round = 0; round < 30; ++round) {
    std::map<std::string, std::uint32_t> numbers = {{"[UNK]", 0}};
    for (int i = 0; i < 40; ++i)
      numbers.try_emplace((draws.below(2) ? "##" : "") + draws.text("abc", 1 + draws.below(3)), numbers.size());
    const TokenModelPtr model = token_models::word_piece(Vocabulary(Numbered(numbers.begin(), numbers.end())), {});
    for (int i = 0; i < 50; ++i) {
      const std::string piece = draws.text("abc", 1 + draws.below(12));
      std::vector<std::uint32_t> expected, ids;
      for (std::size_t begin = 0; begin < piece.size();) {
        std::size_t size = piece.size() - begin;
        const auto text = [&] { return (begin > 0 ? "##" : "") + piece.substr(begin, size); };
        while (size > 0 && !numbers.contains(text())) --size;
        if (size == 0) {
          expected = {0};
          break;
        }
        expected.push_back(numbers.at(text()));
        begin += size;
      }
      model->append_ids(piece, ids);
      EXPECT_EQ(ids, expected) << piece;
    }
  }
}

TEST(WordPiece, SaysThatTheUnknownTokenIsMissing) {
  const TokenModelPtr model = token_models::word_piece(Vocabulary({{"a", 0}}), {});
  std::vector<std::uint32_t> ids;
  EXPECT_EQ(error_of([&] { model->append_ids("ab", ids); }),
            "WordPiece: the unknown token \"[UNK]\" is not in the vocabulary, and \"ab\" needs it");
}

}  // namespace
}  // namespace keel
