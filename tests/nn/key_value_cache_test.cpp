// Rows of a cache that passes read on, against attention in plain loops over all that each row has seen.

#include "keel/nn/key_value_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::uniform_tensor;

constexpr int kHeads = 4, kKvHeads = 2, kHeadSize = 3;

using SeenPosition = std::vector<double>;  // (kv_heads, head_size)
struct SeenRow {
  std::vector<SeenPosition> keys, values;
};

// What one query sees: keys up to `last`, the `window` newest of them (0: all).
std::vector<double> plain_answer(const SeenRow& row, const std::vector<double>& query, std::int64_t head,
                                 std::int64_t last, std::int64_t window) {
  const std::size_t group = static_cast<std::size_t>(head / (kHeads / kKvHeads)) * kHeadSize;
  std::vector<double> answer(kHeadSize, 0.0);
  double sum = 0;
  for (std::int64_t at = window == 0 ? 0 : std::max<std::int64_t>(0, last - window + 1); at <= last; ++at) {
    const auto seen = static_cast<std::size_t>(at);
    double score = 0;
    for (std::size_t c = 0; c < kHeadSize; ++c) score += query[c] * row.keys[seen][group + c];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadSize)));
    sum += weight;
    for (std::size_t c = 0; c < kHeadSize; ++c) answer[c] += weight * row.values[seen][group + c];
  }
  for (double& each : answer) each /= sum;
  return answer;
}

// (batch, heads, time, head_size) as [b][t] -> (heads, head_size).
std::vector<std::vector<SeenPosition>> by_position(const Tensor& x) {
  const std::vector<double> numbers = doubles(x);
  std::vector all(static_cast<std::size_t>(x.dim(0)), std::vector<SeenPosition>(static_cast<std::size_t>(x.dim(2))));
  std::size_t i = 0;
  for (auto& row : all)
    for (std::int64_t h = 0; h < x.dim(1); ++h)
      for (auto& position : row)
        for (std::int64_t c = 0; c < x.dim(3); ++c) position.push_back(numbers[i++]);
  return all;
}

struct OnePass {
  std::vector<std::int64_t> rows;
  std::int64_t time = 1;
};

TEST(KeyValueCache, PassesOverAnyRowsAnswerAsPlainAttentionOverAllThatTheyHaveSeen) {
  const Context context = testing::context(1);
  const std::vector<OnePass> passes = {{{0, 1, 2, 3}, 2}, {{2}, 1},    {{1, 2, 3}, 3}, {{3, 0, 1}, 1}, {{0, 1}, 2},
                                       {{2, 3, 0, 1}, 1}, {{1, 0}, 2}, {{0, 2, 3}, 1}, {{3, 2}, 1},    {{0, 1, 2}, 1}};
  for (const std::int64_t window : {0, 3}) {
    KeyValueCache cache =
        make_key_value_cache(testing::tensor_of(context, {0}, {1}),
                             {.layers = 2, .batch = 4, .kv_heads = kKvHeads, .positions = 12, .head_size = kHeadSize});
    std::vector<SeenRow> seen(4);
    std::uint64_t seed = 1;
    for (const OnePass& pass : passes) {
      CachedRows read = pass.rows.size() == 4 && pass.rows[0] == 0 ? CachedRows(cache) : CachedRows(cache, pass.rows);
      const std::int64_t batch = read.size();
      ASSERT_EQ(batch, std::ssize(pass.rows));
      const PackedViews views = {
          uniform_tensor(context, {batch, kHeads, pass.time, kHeadSize}, seed),
          uniform_tensor(context, {batch, kKvHeads, pass.time, kHeadSize}, seed + 1),
          uniform_tensor(context, {batch, kKvHeads, pass.time, kHeadSize}, seed + 2),
      };
      seed += 3;
      const std::vector<double> positions = doubles(read.positions(context, pass.time));
      read.attend({views.q, views.v, views.k}, 0, window);  // a layer of its own
      const std::vector<double> answers = doubles(read.attend(views, 1, window));
      const auto queries = by_position(views.q), keys = by_position(views.k), values = by_position(views.v);
      std::vector<double> expected, places;
      for (std::size_t b = 0; b < pass.rows.size(); ++b) {
        SeenRow& row = seen[static_cast<std::size_t>(pass.rows[b])];
        const std::int64_t before = std::ssize(row.keys);
        EXPECT_EQ(read.length(static_cast<std::int64_t>(b)), before);
        row.keys.insert(row.keys.end(), keys[b].begin(), keys[b].end());
        row.values.insert(row.values.end(), values[b].begin(), values[b].end());
        for (std::int64_t t = 0; t < pass.time; ++t) {
          places.push_back(static_cast<double>(before + t));
          for (std::int64_t h = 0; h < kHeads; ++h) {
            const auto query = queries[b][static_cast<std::size_t>(t)].begin() + h * kHeadSize;
            const std::vector<double> answer = plain_answer(row, {query, query + kHeadSize}, h, before + t, window);
            expected.insert(expected.end(), answer.begin(), answer.end());
          }
        }
      }
      EXPECT_EQ(positions, places);
      EXPECT_LT(relative_error(answers, expected), 1e-5) << "pass " << &pass - passes.data() << ", window " << window;
      read.advance(pass.time);
    }
    for (std::size_t row = 0; row < seen.size(); ++row) EXPECT_EQ(cache.lengths[row], std::ssize(seen[row].keys));
  }
}

TEST(KeyValueCache, KnowsTheLengthsOfItsRowsAndHoldsNoMoreThanItsCapacity) {
  const Context context = testing::context(1);
  KeyValueCache cache = make_key_value_cache(testing::tensor_of(context, {0}, {1}),
                                             {.batch = 3, .kv_heads = 1, .positions = 4, .head_size = 2});
  const auto views = [&](std::int64_t batch, std::int64_t time) {
    const Tensor x = uniform_tensor(context, {batch, 1, time, 2}, 1);
    return PackedViews{x, x, x};
  };
  EXPECT_EQ(CachedRows(cache).longest(), 0);
  EXPECT_EQ(CachedRows(cache).common_length(), 0);
  CachedRows(cache, {2}).advance(3);
  EXPECT_EQ(CachedRows(cache).longest(), 3);
  EXPECT_EQ(CachedRows(cache).common_length(), std::nullopt);
  EXPECT_EQ(CachedRows(cache, {0, 1}).common_length(), 0);
  EXPECT_EQ(CachedRows(cache, {2}).common_length(), 3);
  CachedRows(cache, {0}).advance(3);
  EXPECT_EQ(CachedRows(cache, {0, 2}).common_length(), 3);
  EXPECT_EQ(CachedRows(cache, {2, 1}).common_length(), std::nullopt);

  EXPECT_EQ(error_of([&] { CachedRows(cache).attend(views(3, 1), 0); }), "");
  EXPECT_EQ(error_of([&] { CachedRows(cache).attend(views(3, 2), 0); }),
            "the key/value cache holds 4 positions; 5 are needed");
  EXPECT_EQ(error_of([&] { CachedRows(cache, {1}).attend(views(1, 4), 0); }), "");
  EXPECT_EQ(error_of([&] { CachedRows(cache, {1}).attend(views(2, 1), 0); }),
            "a pass of 2 rows reads 1 rows of a cache");
  EXPECT_EQ(error_of([&] { CachedRows rows(cache, {0, -1}); }), "row -1 is not in a cache of 3");
  EXPECT_EQ(error_of([&] { CachedRows rows(cache, {3}); }), "row 3 is not in a cache of 3");
  EXPECT_EQ(error_of([&] { CachedRows rows(cache, {1, 2, 1}); }), "row 1 of a cache is read twice in one pass");
  EXPECT_EQ(error_of([&] { CachedRows rows(cache, {}); }), "a pass reads at least one row of a cache");
}

}  // namespace
}  // namespace keel
