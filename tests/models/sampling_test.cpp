// Choices among tokens against formulas in double precision, and the frequencies of draws.

#include "keel/models/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

std::vector<float> uneven_logits(std::size_t count, std::uint64_t seed) {
  std::vector<float> logits(count);
  fill_normal(logits, seed, "logits");
  for (float& logit : logits) logit *= 3;
  return logits;
}

// Probabilities behind all options, by their definitions: each step renormalises what the one before left.
std::vector<double> probabilities(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp(double{logits[i]} / options.temperature);
  const auto normalise = [&] {
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& each : p) each /= total;
  };
  const auto keep = [&](std::size_t count) {
    for (std::size_t i = count; i < order.size(); ++i) p[order[i]] = 0;
    normalise();
  };
  normalise();
  if (options.top_k > 0) keep(static_cast<std::size_t>(options.top_k));
  if (options.top_p < 1) {
    std::size_t count = 0;
    for (double sum = 0; count < order.size() && sum < options.top_p; ++count) sum += p[order[count]];
    keep(count);
  }
  std::size_t count = 0;
  while (count < order.size() && p[order[count]] >= options.min_p * p[order[0]]) ++count;
  keep(count);
  return p;
}

const std::vector<SamplingOptions>& sampling_cases() {
  static const std::vector<SamplingOptions> cases = {{},
                                                     {.temperature = 2.5, .top_k = 7},
                                                     {.temperature = 0.7, .top_p = 0.9},
                                                     {.temperature = 1.5, .top_k = 50, .top_p = 0.5},
                                                     {.temperature = 1, .min_p = 0.1},
                                                     {.temperature = 3, .top_k = 20, .top_p = 0.95, .min_p = 0.05},
                                                     {.top_p = 1e-9},
                                                     {.min_p = 1}};
  return cases;
}

// Pearson's test at a chance of one in a million to fail, where draws are fixed by their seed.
TEST(Sampling, DrawsTokensAsOftenAsTheyAreLikely) {
  constexpr int kDraws = 20'000;
  const std::vector<float> logits = uneven_logits(30, 5);
  TokenChooser chooser;
  for (const SamplingOptions& options : sampling_cases()) {
    const std::vector<double> p = probabilities(logits, options);
    std::vector<double> counts(logits.size());
    // Half of the draws are steps of one row, half are rows of one step.
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const float draw = i % 2 == 0 ? draw_of(11, 3, i) : draw_of(11, 100 + i, 2);
      ++counts[static_cast<std::size_t>(chooser.choose(logits, options, draw))];
    }
    double chi = 0, rest = 0, rest_expected = 0, freedom = -1;
    for (std::size_t token = 0; token < p.size(); ++token) {
      if (p[token] == 0) {
        EXPECT_EQ(counts[token], 0) << token;
      } else if (const double expected = p[token] * kDraws; expected < 5) {
        rest += counts[token];
        rest_expected += expected;
      } else {
        chi += (counts[token] - expected) * (counts[token] - expected) / expected;
        ++freedom;
      }
    }
    if (rest_expected >= 5) {
      chi += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
      ++freedom;
    }
    // Wilson and Hilferty's approximation of the quantile.
    const double part = freedom > 0 ? 2 / (9 * freedom) : 0;
    EXPECT_LE(chi, freedom * std::pow(1 - part + 4.75 * std::sqrt(part), 3))
        << "temperature " << options.temperature << ", top_k " << options.top_k << ", top_p " << options.top_p;
  }
}

// Of a vocabulary of which the sampler orders no more than it must.
TEST(Sampling, GoesThroughTheLikeliestTokensInOrder) {
  const std::vector<float> logits = uneven_logits(3000, 6);
  TokenChooser chooser;
  for (const SamplingOptions& options : sampling_cases()) {
    const std::vector<double> p = probabilities(logits, options);
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    double below = 0;
    for (const std::size_t token : order) {
      const double draw = below + p[token] / 2;
      below += p[token];
      // The middle of its stretch, unless floats cannot tell it from the borders.
      if (p[token] > 1e-6) {
        ASSERT_EQ(chooser.choose(logits, options, static_cast<float>(draw)), static_cast<std::int64_t>(token)) << draw;
      }
    }
    EXPECT_EQ(chooser.choose(logits, options, 0), static_cast<std::int64_t>(order[0]));
  }
}

// tests/golden/generate_sampling.py: each token has the stretch of draws that transformers' probabilities give it.
TEST(Sampling, LeavesWhatTransformersLeaves) {
  const Json golden = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/sampling.json"));
  std::vector<std::int64_t> text;
  for (const Json& token : golden.at("text").items()) text.push_back(token.integer());
  std::ranges::sort(text);
  text.erase(std::unique(text.begin(), text.end()), text.end());
  TokenChooser chooser;
  for (const Json& each : golden.at("cases").items()) {
    const auto number = [&](const char* name, double standard) {
      return each.contains(name) ? each.at(name).number() : standard;
    };
    const SamplingOptions options{.temperature = number("temperature", 1),
                                  .top_k = static_cast<std::int64_t>(number("top_k", 0)),
                                  .top_p = number("top_p", 1),
                                  .min_p = number("min_p", 0),
                                  .repetition_penalty = number("repetition_penalty", 1)};
    std::vector<float> logits;
    for (const Json& logit : golden.at("logits").items()) logits.push_back(static_cast<float>(logit.number()));
    penalize_repetition(logits, text, options.repetition_penalty);
    std::vector<std::pair<double, std::int64_t>> shares;
    for (std::int64_t token = 0; const Json& share : each.at("probabilities").items()) {
      if (share.number() > 0) shares.emplace_back(share.number(), token);
      ++token;
    }
    std::ranges::stable_sort(shares, std::ranges::greater(), [](const auto& share) { return share.first; });
    ASSERT_FALSE(shares.empty());
    double below = 0;
    for (const auto& [share, token] : shares) {
      if (share > 1e-4) {
        EXPECT_EQ(chooser.choose(logits, options, static_cast<float>(below + 0.01 * share)), token) << each.dump();
        EXPECT_EQ(chooser.choose(logits, options, static_cast<float>(below + 0.99 * share)), token) << each.dump();
      }
      below += share;
    }
    // The largest draw is 2^-24 below 1.
    if (shares.back().first > 1e-6) {
      EXPECT_EQ(chooser.choose(logits, options, 0x1.fffffep-1f), shares.back().second) << each.dump();
    }
  }
}

TEST(Sampling, TakesTheFirstOfTheLikeliestWhereItIsGreedy) {
  TokenChooser chooser;
  const std::vector<float> logits = {1, 4, -2, 4, 3};
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0}, {.temperature = 9, .top_k = 1}, {.temperature = 0, .top_p = 0.5}})
    for (const float draw : {0.0f, 0.5f, 0.99f}) EXPECT_EQ(chooser.choose(logits, options, draw), 1);
}

TEST(Sampling, MakesTokensThatTheTextHasLessLikely) {
  for (const double penalty : {0.5, 1.0, 1.3, 4.0}) {
    std::vector<float> logits = uneven_logits(40, 7);
    const std::vector<float> before = logits;
    const std::vector<std::int64_t> tokens = {3, 0, 39, 17};
    penalize_repetition(logits, tokens, penalty);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const bool is_there = std::ranges::find(tokens, static_cast<std::int64_t>(i)) != tokens.end();
      const double own = before[i], expected = !is_there ? own : own < 0 ? own * penalty : own / penalty;
      EXPECT_NEAR(logits[i], expected, 1e-6 * std::abs(expected)) << i << ", " << penalty;
    }
  }
}

// The first row's draws are words of the stream that one text alone has always had.
TEST(Sampling, DrawsAreTheWordsOfAStreamForEachRow) {
  std::vector<float> all;
  for (std::uint64_t row = 0; row < 20; ++row)
    for (std::uint64_t step = 0; step < 20; ++step) all.push_back(draw_of(4, row, step));
  for (std::uint64_t step = 0; step < 20; ++step)
    EXPECT_EQ(all[step], to_uniform(stream_word(key_of(4, "generate"), step)));
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << "no two of 400 words are the same";
  EXPECT_NE(draw_of(4, 1, 0), draw_of(5, 1, 0));
  EXPECT_NE(draw_of(4, std::uint64_t{1} << 32, 0), draw_of(4, 0, 0));
}

TEST(Sampling, RefusesWhatMakesNoSense) {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  for (const double top_p : {0.0, -0.1, 1.1, nan})
    EXPECT_NE(error_of([&] { check_sampling({.top_p = top_p}); }).find("above 0 and at most 1"), std::string::npos);
  for (const double min_p : {-0.1, 1.1, nan})
    EXPECT_NE(error_of([&] { check_sampling({.min_p = min_p}); }).find("min_p must be from 0 to 1"), std::string::npos);
  for (const double penalty : {0.0, -1.0, nan, infinite})
    EXPECT_NE(
        error_of([&] { check_sampling({.repetition_penalty = penalty}); }).find("repetition_penalty must be above"),
        std::string::npos);
  TokenChooser chooser;
  const auto refusal = [&](const std::vector<float>& logits) {
    return error_of([&] { chooser.choose(logits, {}, 0.5f); });
  };
  const auto bad = static_cast<float>(nan), large = static_cast<float>(infinite);
  EXPECT_EQ(refusal({1, bad, 2}), "the model's logit of token 1 is not a number");
  EXPECT_EQ(refusal({1, large, 2}), "the model's largest logit is not finite");
  EXPECT_EQ(refusal({-large, -large}), "the model's largest logit is not finite");
  EXPECT_EQ(refusal({1, -large, 2}), "");
}

}  // namespace
}  // namespace keel
