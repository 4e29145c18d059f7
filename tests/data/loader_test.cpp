#include "keel/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "keel/data/divide_rows.h"
#include "keel/data/draws.h"
#include "keel/data/prefetch.h"
#include "keel/data/token_batch.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

// The token at position i is i, so that a batch tells where it was read.
Tokens counting(std::int64_t size) {
  std::vector<std::uint32_t> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0u);
  return Tokens(values, size, "counting");
}

std::vector<double> joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The first input of each row; fails unless rows and targets follow from it.
std::vector<std::int64_t> starts_of(const Batch& batch) {
  const std::int64_t rows = batch[kInputIds].dim(0), block = batch[kInputIds].dim(1);
  const auto inputs = batch[kInputIds].to_vector<std::int32_t>(), targets = batch[kLabels].to_vector<std::int32_t>();
  std::vector<std::int64_t> starts;
  for (std::int64_t row = 0; row < rows; ++row) {
    starts.push_back(inputs[static_cast<std::size_t>(row * block)]);
    for (std::int64_t i = 0; i < block; ++i) {
      EXPECT_EQ(inputs[static_cast<std::size_t>(row * block + i)], starts.back() + i);
      EXPECT_EQ(targets[static_cast<std::size_t>(row * block + i)], starts.back() + i + 1);
    }
  }
  EXPECT_EQ(batch.weight(kTokenWeight), rows * block);
  return starts;
}

TEST(RandomWindowLoader, ReadsWindowsAtPlacesUniformOverTheSequence) {
  const RandomWindowLoader loader(testing::context(), counting(40), {.rows = 50, .block = 8, .seed = 3});
  std::map<std::int64_t, int> counts;
  for (std::int64_t step = 0; step < 200; ++step)
    for (const std::int64_t start : starts_of(loader.load_all(step))) ++counts[start];
  ASSERT_EQ(counts.size(), 32u);  // 0 to 31: the last target is token 39
  double chi_square = 0;
  for (const auto& [start, count] : counts) chi_square += (count - 312.5) * (count - 312.5) / 312.5;
  EXPECT_LT(chi_square, 31 + 4 * std::sqrt(2 * 31.0));
}

TEST(RandomWindowLoader, BatchIsAFunctionOfSeedAndStep) {
  const Context context = testing::context();
  const WindowOptions options = {.rows = 12, .block = 5, .seed = 7};
  const RandomWindowLoader a(context, counting(1000), options), b(context, counting(1000), options);
  const auto late = starts_of(a.load_all(1'000'000'007));
  EXPECT_NE(starts_of(a.load_all(0)), starts_of(a.load_all(1)));
  EXPECT_EQ(starts_of(b.load_all(1'000'000'007)), late);
  const RandomWindowLoader other(context, counting(1000), {.rows = 12, .block = 5, .seed = 8});
  EXPECT_NE(starts_of(other.load_all(0)), starts_of(a.load_all(0)));
}

TEST(RandomWindowLoader, FitsASequenceOfOneWindowExactly) {
  const RandomWindowLoader loader(testing::context(), counting(9), {.rows = 3, .block = 8});
  EXPECT_EQ(starts_of(loader.load_all(5)), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_FALSE(error_of([] { RandomWindowLoader(testing::context(), counting(8), {.block = 8}); }).empty());
  EXPECT_FALSE(error_of([] { RandomWindowLoader(testing::context(), counting(8), {.rows = 0}); }).empty());
}

TEST(Loaders, RowsDoNotDependOnHowTheyAreDivided) {
  const Context context = testing::context();
  const WindowOptions options = {.rows = 12, .block = 4, .seed = 1};
  const RandomWindowLoader random(context, counting(300), options);
  const SequentialLoader sequential(context, counting(300), options);
  const EpochLoader epoch(context, counting(300), options);
  for (const BatchSource* loader :
       {static_cast<const BatchSource*>(&random), static_cast<const BatchSource*>(&sequential),
        static_cast<const BatchSource*>(&epoch)}) {
    const Batch whole = loader->load_all(3);
    std::vector<std::vector<double>> inputs, targets, ids;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      for (const Rows range : divide_rows(12, 2, rank, 2)) {
        const Batch part = loader->load(3, range);
        inputs.push_back(doubles(part[kInputIds]));
        targets.push_back(doubles(part[kLabels]));
        ids.push_back(doubles(part.sample_ids()));
      }
    }
    EXPECT_EQ(joined(inputs), doubles(whole[kInputIds]));
    EXPECT_EQ(joined(targets), doubles(whole[kLabels]));
    EXPECT_EQ(joined(ids), doubles(whole.sample_ids()));
    EXPECT_EQ(joined(ids)[0], 36);
    for (const Rows range : {Rows{10, 13}, {-1, 2}, {3, 2}, {3, 3}})
      EXPECT_NE(error_of([&] { loader->load(3, range); }).find("are none of the 12 rows of step 3"), std::string::npos);
    EXPECT_FALSE(error_of([&] { loader->load_all(-1); }).empty());
  }
}

TEST(SequentialLoader, CoversEachTargetExactlyOnceInOrder) {
  const Context context = testing::context();
  for (const std::int64_t size : {2, 3, 8, 9, 10, 25, 33, 64, 65, 66, 100}) {
    const SequentialLoader loader(context, counting(size), {.rows = 3, .block = 8});
    std::vector<std::int32_t> covered;
    std::int64_t counted = 0;
    for (std::int64_t step = 0; step < loader.steps(); ++step) {
      const Batch batch = loader.load_all(step);
      EXPECT_EQ(batch[kInputIds].dim(0), step + 1 < loader.steps() ? 3 : loader.rows(step));
      counted += batch.weight(kTokenWeight);
      const auto inputs = batch[kInputIds].to_vector<std::int32_t>(),
                 targets = batch[kLabels].to_vector<std::int32_t>();
      for (std::size_t i = 0; i < targets.size(); ++i) {
        if (targets[i] == kIgnoreTarget) {
          EXPECT_EQ(inputs[i], 0);
        } else {
          EXPECT_EQ(inputs[i] + 1, targets[i]);
          covered.push_back(targets[i]);
        }
      }
    }
    std::vector<std::int32_t> expected(static_cast<std::size_t>(size - 1));
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(covered, expected) << size;
    EXPECT_EQ(counted, size - 1);
    EXPECT_FALSE(error_of([&] { loader.load_all(loader.steps()); }).empty());
  }
  EXPECT_FALSE(error_of([&] { SequentialLoader(context, counting(1), {}); }).empty());
}

TEST(EpochLoader, ReadsEachWindowOnceAnEpochInADifferentOrder) {
  const EpochLoader loader(testing::context(), counting(8 * 30 + 5), {.rows = 7, .block = 8, .seed = 2});
  ASSERT_EQ(loader.windows(), 30);
  std::vector<std::int64_t> starts;
  for (std::int64_t step = 0; starts.size() < 90; ++step)
    for (const std::int64_t start : starts_of(loader.load_all(step))) starts.push_back(start);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order(starts.begin() + epoch * 30, starts.begin() + epoch * 30 + 30);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], 8 * i);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(EpochLoader, FitsASequenceOfOneWindowExactly) {
  const EpochLoader loader(testing::context(), counting(9), {.rows = 3, .block = 8});
  EXPECT_EQ(starts_of(loader.load_all(5)), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_FALSE(error_of([] { EpochLoader(testing::context(), counting(8), {.block = 8}); }).empty());
  EXPECT_FALSE(error_of([] { EpochLoader(testing::context(), counting(8), {.rows = 0}); }).empty());
}

TEST(Loaders, TakeOneRowOfOneTokenAndNoLess) {
  const Context context = testing::context();
  const auto check = [&]<class L>(L*) {
    const auto of = [&](std::int64_t rows, std::int64_t block) {
      return L(context, counting(2), {.rows = rows, .block = block});
    };
    EXPECT_EQ(starts_of(of(1, 1).load_all(0)), std::vector<std::int64_t>{0});
    for (const auto& [rows, block] : {std::pair{0, 1}, {1, 0}})
      EXPECT_NE(error_of([&, rows = rows, block = block] { of(rows, block); }).find("both must be at least 1"),
                std::string::npos);
  };
  check(static_cast<RandomWindowLoader*>(nullptr));
  check(static_cast<SequentialLoader*>(nullptr));
  check(static_cast<EpochLoader*>(nullptr));
}

TEST(Loaders, WorkBehindAPrefetchThread) {
  const auto loader =
      std::make_shared<RandomWindowLoader>(testing::context(), counting(500), WindowOptions{.rows = 4, .block = 8});
  PrefetchLoader ahead(loader, 10);
  for (std::int64_t step = 10; step < 60; ++step)
    EXPECT_EQ(doubles((*ahead.next())[kInputIds]), doubles(loader->load_all(step)[kInputIds]));
}

TEST(Draws, EpochHasEveryElementOnceForEverySize) {
  for (std::int64_t size = 1; size < 200; ++size) {
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < size; ++i) seen.insert(epoch_element(epoch * size + i, size, 5));
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
      EXPECT_EQ(*seen.rbegin(), size - 1);
    }
  }
  EXPECT_FALSE(error_of([] { epoch_element(-1, 5, 0); }).empty());
  EXPECT_FALSE(error_of([] { epoch_element(0, 0, 0); }).empty());
}

TEST(Draws, EpochsPutEveryElementEverywhereEquallyOften) {
  constexpr int kSize = 6, kEpochs = 6000;
  int counts[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (int place = 0; place < kSize; ++place) ++counts[place][epoch_element(epoch * kSize + place, kSize, 9)];
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, kEpochs / kSize, 5 * std::sqrt(kEpochs / kSize));
}

// Bounds that show every bit of the two words, and small ones.
TEST(Draws, AreTheHighHalfOfTheBoundTimesTheFirstTwoWords) {
  __extension__ using Wide = unsigned __int128;
  const PhiloxKey key = key_of(3, "window");
  for (const std::int64_t bound : {std::int64_t{2}, std::int64_t{1000}, (std::int64_t{1} << 40) - 3, INT64_MAX}) {
    for (const std::int64_t step :
         {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 32, (std::int64_t{5} << 32) + 1}) {
      for (const std::uint32_t attempt : {0u, 3u}) {
        const PhiloxWords words =
            philox({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), 11, attempt}, key);
        const Wide bits = Wide{words[0]} * (Wide{1} << 32) + words[1];
        EXPECT_EQ(draw_below(bound, key, step, 11, attempt),
                  static_cast<std::int64_t>(bits * static_cast<Wide>(bound) >> 64));
      }
    }
  }
}

TEST(Draws, AreUniformAndIndependentOfEachOther) {
  const PhiloxKey first = key_of(1, "window"), second = key_of(1, "addition");
  double mean = 0, product = 0;
  for (std::int64_t step = 0; step < 200; ++step) {
    for (std::int64_t row = 0; row < 100; ++row) {
      const auto a = static_cast<double>(draw_below(1000, first, step, row)) - 499.5;
      const auto b = static_cast<double>(draw_below(1000, second, step, row)) - 499.5;
      mean += a / 20000;
      product += a * b / 20000;
    }
  }
  const double deviation = 1000 / std::sqrt(12.0);
  EXPECT_NEAR(mean, 0, 4 * deviation / std::sqrt(20000.0));
  EXPECT_NEAR(product, 0, 4 * deviation * deviation / std::sqrt(20000.0));
  EXPECT_EQ(draw_below(1, first, 1, 1), 0);
  EXPECT_FALSE(error_of([&] { draw_below(0, first, 1, 1); }).empty());
}

}  // namespace
}  // namespace keel
