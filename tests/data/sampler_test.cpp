#include "keel/data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "keel/data/batch.h"
#include "keel/data/divide_rows.h"
#include "keel/data/mixture.h"
#include "keel/runtime/random.h"
#include "tests/data/list_dataset.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

constexpr LastRows kEveryRule[] = {LastRows::fewer, LastRows::join, LastRows::drop};

struct Sizes {
  std::int64_t size, rows;
};
constexpr Sizes kSizes[] = {{1, 1}, {7, 7}, {12, 4}, {13, 4}, {23, 5}, {101, 10}};

// What the steps read, epoch by epoch.
std::map<std::int64_t, std::vector<std::int64_t>> epochs_of(const Sampler& sampler, std::int64_t steps) {
  std::map<std::int64_t, std::vector<std::int64_t>> epochs;
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t row = 0; row < sampler.rows(step); ++row)
      epochs[sampler.epoch(step, row)].push_back(sampler.example(step, row));
  return epochs;
}

// Three epochs and what a step of the next one may have.
std::int64_t three_epochs(const Sampler& sampler) {
  return static_cast<std::int64_t>(std::ceil(3 * sampler.steps_per_epoch()));
}

// `window`: steps that may be drawn before their turn.
void expect_each_once(const Sampler& sampler, Sizes sizes, LastRows last, std::int64_t window = 0) {
  const auto epochs = epochs_of(sampler, three_epochs(sampler) + window);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto& examples = epochs.at(epoch);
    const std::set<std::int64_t> different(examples.begin(), examples.end());
    EXPECT_EQ(different.size(), examples.size());
    EXPECT_GE(*different.begin(), 0);
    EXPECT_LT(*different.rbegin(), sizes.size);
    const std::int64_t used = last == LastRows::drop ? sizes.size / sizes.rows * sizes.rows : sizes.size;
    EXPECT_EQ(std::ssize(examples), used);
  }
}

void expect_numbered_samples(const Sampler& sampler, std::int64_t steps) {
  std::int64_t sample = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(sampler.first_sample(step), sample);
    sample += sampler.rows(step);
  }
}

TEST(Sampler, ReadsEachExampleOnceAnEpochByEveryRule) {
  for (const auto sizes : kSizes)
    for (const LastRows last : kEveryRule) {
      const SamplerOptions options = {.rows = sizes.rows, .seed = 3, .last = last};
      expect_each_once(*shuffled(sizes.size, options), sizes, last);
      for (const std::int64_t window : {1, 2, 3, 100})
        expect_each_once(*grouped_by_length(testing::numbered(sizes.size), window, options), sizes, last, window);
    }
}

TEST(Sampler, NumbersSamplesWithoutGaps) {
  for (const auto sizes : kSizes)
    for (const LastRows last : kEveryRule) {
      const SamplerOptions options = {.rows = sizes.rows, .seed = 3, .last = last};
      for (const SamplerPtr& sampler :
           {shuffled(sizes.size, options), grouped_by_length(testing::numbered(sizes.size), 2, options),
            weighted(std::vector<double>(static_cast<std::size_t>(sizes.size), 1), options)})
        expect_numbered_samples(*sampler, three_epochs(*sampler));
      const SamplerPtr in_order = sequential(sizes.size, sizes.rows);
      expect_numbered_samples(*in_order, in_order->steps());
    }
}

TEST(Sampler, RowsOfStepsFollowTheRule) {
  const auto rows = [](LastRows last) {
    const SamplerPtr sampler = shuffled(10, {.rows = 4, .last = last});
    std::vector<std::int64_t> all;
    for (std::int64_t step = 0; step < 6; ++step) all.push_back(sampler->rows(step));
    return std::pair(all, sampler->steps_per_epoch());
  };
  EXPECT_EQ(rows(LastRows::fewer), std::pair(std::vector<std::int64_t>({4, 4, 2, 4, 4, 2}), 3.0));
  EXPECT_EQ(rows(LastRows::join), std::pair(std::vector<std::int64_t>({4, 4, 4, 4, 4, 4}), 2.5));
  EXPECT_EQ(rows(LastRows::drop), std::pair(std::vector<std::int64_t>({4, 4, 4, 4, 4, 4}), 2.0));
  EXPECT_EQ(shuffled(10, {})->steps(), BatchSource::kEndless);
}

TEST(Sampler, IsAFunctionOfSeedStepAndRow) {
  const auto samplers = [](std::uint64_t seed) {
    const SamplerOptions options = {.rows = 4, .seed = seed, .last = LastRows::join};
    return std::vector<SamplerPtr>{shuffled(50, options), weighted(std::vector<double>(50, 1), options),
                                   grouped_by_length(testing::numbered(50), 3, options)};
  };
  const auto first = samplers(1), again = samplers(1), other = samplers(2);
  for (std::size_t i = 0; i < first.size(); ++i) {
    int differences = 0;
    // Backwards, and from several threads.
    std::vector<std::thread> threads;
    std::vector<std::vector<std::int64_t>> found(3);
    for (auto& list : found)
      threads.emplace_back([&] {
        for (std::int64_t step = 59; step >= 0; --step)
          for (std::int64_t row = 3; row >= 0; --row) list.push_back(again[i]->example(step, row));
      });
    for (std::thread& thread : threads) thread.join();
    for (std::int64_t step = 0; step < 60; ++step)
      for (std::int64_t row = 0; row < 4; ++row) {
        const std::int64_t example = first[i]->example(step, row);
        for (const auto& list : found) EXPECT_EQ(list[static_cast<std::size_t>(239 - 4 * step - row)], example);
        differences += example != other[i]->example(step, row) ? 1 : 0;
      }
    EXPECT_GT(differences, 120);
  }
}

TEST(Sampler, EpochsHaveOrdersOfTheirOwn) {
  for (const SamplerPtr& sampler :
       {shuffled(50, {.rows = 50}), grouped_by_length(testing::numbered(50), 2, {.rows = 10})}) {
    const auto epochs = epochs_of(*sampler, three_epochs(*sampler));
    EXPECT_NE(epochs.at(0), epochs.at(1));
    EXPECT_NE(epochs.at(1), epochs.at(2));
  }
}

TEST(SequentialSampler, ReadsEachOnceInOrderAndEnds) {
  const SamplerPtr sampler = sequential(10, 4);
  EXPECT_EQ(sampler->steps(), 3);
  EXPECT_EQ(sampler->steps_per_epoch(), 3);
  const std::vector<std::int64_t> wanted = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(epochs_of(*sampler, 3).at(0), wanted);
  EXPECT_EQ(sequential(0, 4)->steps(), 0);
  EXPECT_NE(error_of([&] { (void)sampler->rows(3); }).find("3 steps"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)sampler->example(2, 2); }).find("2 rows of step 2"), std::string::npos);
}

TEST(WeightedSampler, DrawsByWeightAndNeverWhatWeighsNothing) {
  const std::vector<double> weights = {0, 1, 0, 3, 4, 0};
  const SamplerPtr sampler = weighted(weights, {.rows = 100, .seed = 5, .last = LastRows::join});
  std::vector<double> counts(weights.size());
  for (std::int64_t step = 0; step < 400; ++step)
    for (std::int64_t row = 0; row < 100; ++row) ++counts[static_cast<std::size_t>(sampler->example(step, row))];
  // 40,000 draws: five standard deviations of a count are at most 500.
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(counts[i], 40000 * weights[i] / 8, weights[i] == 0 ? 0 : 500) << i;
}

TEST(WeightedSampler, RefusesWeightsThatAreNone) {
  for (const std::vector<double>& weights : {std::vector<double>{}, {0, 0}, {1, -1}, {1, std::nan("")}, {1, INFINITY}})
    EXPECT_NE(error_of([&] { (void)weighted(weights, {}); }), "");
  EXPECT_NE(error_of([] { (void)weighted({1, 2, -1}, {}); }).find("example 2 is -1"), std::string::npos);
}

TEST(GroupedSampler, StepsHaveLikeLengthsAndNotAlwaysTheShortestFirst) {
  const DatasetPtr data = testing::numbered(700);
  const SamplerPtr sampler = grouped_by_length(data, 7, {.rows = 10, .seed = 4});
  std::vector<std::int64_t> first;
  for (std::int64_t step = 0; step < 70; ++step) {
    std::int64_t least = 8, most = 0;
    for (std::int64_t row = 0; row < 10; ++row) {
      const std::int64_t length = data->length(sampler->example(step, row));
      least = std::min(least, length);
      most = std::max(most, length);
    }
    EXPECT_LE(most - least, 2) << step;
    first.push_back(least);
  }
  EXPECT_FALSE(std::ranges::is_sorted(std::span(first).first(7)) &&
               std::ranges::is_sorted(std::span(first).subspan(7, 7)) &&
               std::ranges::is_sorted(std::span(first).subspan(14, 7)));
}

TEST(Sampler, OfStretchesGivesEveryRankNeighboursInOrder) {
  for (const std::int64_t world : {1, 2, 3, 4}) {
    for (const std::int64_t size : {0, 1, 5, 12, 13, 29}) {
      const SamplerPtr sampler = in_stretches(size, 2 * world, world);
      std::vector<std::vector<std::int64_t>> read(static_cast<std::size_t>(world));
      for (std::int64_t step = 0; step < sampler->steps(); ++step) {
        const std::int64_t rows = sampler->rows(step);
        for (std::int64_t row = 0; row < rows; ++row) {
          std::int64_t rank = 0;
          if (rows < world) rank = row;
          else
            while (divide_rows(rows, rows, rank, world).front().end <= row) ++rank;
          read[static_cast<std::size_t>(rank)].push_back(sampler->example(step, row));
        }
      }
      std::int64_t next = 0;
      for (const std::vector<std::int64_t>& examples : read) {
        EXPECT_LE(std::ssize(examples), (size + world - 1) / world);
        for (const std::int64_t example : examples) EXPECT_EQ(example, next++) << world << ' ' << size;
      }
      EXPECT_EQ(next, size);
    }
  }
  EXPECT_EQ(error_of([] { (void)in_stretches(9, 5, 2); }), "a step of 5 rows does not give 2 ranks as many each");
}

TEST(Sampler, RefusesSizesThatLeaveNothingToDraw) {
  EXPECT_NE(error_of([] { (void)shuffled(0, {}); }), "");
  EXPECT_NE(error_of([] { (void)shuffled(3, {.rows = 0}); }), "");
  EXPECT_NE(error_of([] { (void)shuffled(3, {.rows = 4, .last = LastRows::drop}); }).find("4 rows"), std::string::npos);
  EXPECT_EQ(shuffled(3, {.rows = 4})->rows(0), 3);
  EXPECT_EQ(shuffled(3, {.rows = 4, .last = LastRows::join})->rows(0), 4);
  EXPECT_NE(error_of([] { (void)grouped_by_length(testing::numbered(3), 0, {}); }), "");
  EXPECT_NE(error_of([] { (void)grouped_by_length(nullptr, 1, {}); }), "");
  const DatasetPtr unknown = std::make_shared<testing::ListDataset>(std::vector<Example>(3));
  EXPECT_NE(error_of([&] { (void)grouped_by_length(unknown, 1, {}); }).find("lengths"), std::string::npos);
  EXPECT_NE(error_of([] { (void)shuffled(3, {.rows = 2})->example(1, 1); }), "");
  EXPECT_NE(error_of([] { (void)shuffled(3, {})->rows(-1); }), "");
}

// The first sum of weights above a uniform number of 53 bits, in another order of work.
std::int64_t drawn_by_weight(const std::vector<double>& weights, std::int64_t sample, std::uint64_t seed) {
  const PhiloxWords words = philox({static_cast<std::uint32_t>(sample % (std::int64_t{1} << 32)),
                                    static_cast<std::uint32_t>(sample / (std::int64_t{1} << 32)), 0, 0},
                                   key_of(seed, "weighted"));
  const double uniform =
      static_cast<double>(words[0]) / 4294967296. + static_cast<double>(words[1] / 2048) / 2097152. / 4294967296.;
  double all = 0;
  for (const double weight : weights) all += weight;
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum > uniform * all) return static_cast<std::int64_t>(i);
  }
  return -1;
}

TEST(WeightedSampler, DrawsAsTheNumberOfTheSampleSays) {
  std::vector<double> weights;
  for (int i = 0; i < 1000; ++i) weights.push_back(i % 5);  // the sums are exact
  for (const std::uint64_t seed : {0, 5}) {
    const SamplerPtr sampler = weighted(weights, {.rows = 7, .seed = seed, .last = LastRows::join});
    for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 32) / 7 - 5, std::int64_t{1} << 50})
      for (std::int64_t step = first; step < first + 20; ++step)
        for (std::int64_t row = 0; row < 7; ++row)
          ASSERT_EQ(sampler->example(step, row), drawn_by_weight(weights, 7 * step + row, seed)) << step << ' ' << row;
  }
}

// The last row of the last step has a number that fits.
TEST(Sampler, HasStepsUpToTheLastWhoseSamplesCanBeNumbered) {
  for (const std::int64_t rows : {1, 3, 4}) {
    const std::int64_t steps = BatchSource::kEndless / rows;
    for (const LastRows last : {LastRows::join, LastRows::drop}) {
      const SamplerOptions options = {.rows = rows, .seed = 3, .last = last};
      for (const SamplerPtr& sampler :
           {shuffled(12, options), weighted(std::vector<double>(12, 1), options),
            grouped_by_length(testing::numbered(12), 2, options), mixed({8, 4}, {2, 1}, options)}) {
        EXPECT_EQ(sampler->rows(0), rows);
        EXPECT_EQ(sampler->rows(steps - 1), rows);
        EXPECT_EQ(sampler->first_sample(steps - 1), (steps - 1) * rows);
        EXPECT_EQ(error_of([&] { (void)sampler->rows(steps); }), concat("there is no step ", steps));
        EXPECT_EQ(error_of([&] { (void)sampler->rows(-1); }), "there is no step -1");
        EXPECT_EQ(error_of([&] { (void)sampler->example(5, rows - 1); }), "");
        EXPECT_NE(error_of([&] { (void)sampler->example(5, rows); }).find(concat("row ", rows)), std::string::npos);
        EXPECT_NE(error_of([&] { (void)sampler->example(5, -1); }).find("row -1"), std::string::npos);
      }
    }
  }
}

TEST(Sampler, TakesTheLeastThatItsOptionsMayBe) {
  EXPECT_EQ(shuffled(1, {.rows = 1})->example(0, 0), 0);
  EXPECT_EQ(shuffled(3, {.rows = 3, .last = LastRows::drop})->rows(0), 3) << "an epoch of one step";
  EXPECT_EQ(grouped_by_length(testing::numbered(1), 1, {.rows = 1})->example(0, 0), 0);
  EXPECT_EQ(sequential(1, 1)->example(0, 0), 0);
  EXPECT_EQ(error_of([] { (void)sequential(1, 0); }), "a step has at least one row, not 0");
  EXPECT_EQ(error_of([] { (void)sequential(-1, 1); }), "a data set cannot have -1 examples");
  EXPECT_EQ(in_stretches(1, 1, 1)->example(0, 0), 0);
  EXPECT_NE(error_of([] { (void)in_stretches(1, 1, 0); }), "");
  EXPECT_EQ(weighted({0, 1e-300}, {.rows = 1})->example(0, 0), 1);
}

}  // namespace
}  // namespace keel
