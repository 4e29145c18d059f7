#include "keel/data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "keel/data/packing.h"
#include "tests/data/list_dataset.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

// The largest difference of a part's places from its share in the first n places, for all n up to `places`.
double worst_difference(const Shares& shares, std::int64_t places) {
  std::vector<std::int64_t> given(shares.parts());
  double worst = 0;
  for (std::int64_t n = 0; n < places; ++n) {
    ++given[shares.part(n)];
    for (std::size_t part = 0; part < given.size(); ++part)
      worst = std::max(worst,
                       std::fabs(static_cast<double>(given[part]) - static_cast<double>(n + 1) * shares.share(part)));
  }
  return worst;
}

TEST(Shares, AreExactForDecimalsOfFewDigits) {
  const Shares shares({0.7, 0.2, 0.1});
  EXPECT_EQ(shares.period(), 10);
  EXPECT_EQ(shares.share(0), 0.7);
  EXPECT_EQ(shares.share(2), 0.1);
  EXPECT_EQ(Shares({3, 6}).period(), 3);
  EXPECT_EQ(Shares({5}).period(), 1);
  EXPECT_EQ(Shares({0.000001, 0.999999}).period(), 1'000'000);
}

TEST(Shares, OfOtherWeightsAreMillionths) {
  const Shares shares({1, std::sqrt(2.0)});
  EXPECT_EQ(shares.period(), Shares::kPeriod);
  EXPECT_NEAR(shares.share(0), 1 / (1 + std::sqrt(2.0)), 5e-7);
  EXPECT_EQ(shares.share(0) + shares.share(1), 1);
}

TEST(Shares, HoldAtEveryBeginningToLessThanOnePlace) {
  EXPECT_LT(worst_difference(Shares({0.7, 0.2, 0.1}), 1000), 0.75 + 1e-9);
  // Where greedy rules are off by more: one large part and many small ones.
  EXPECT_LT(worst_difference(Shares({0.91, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}), 1000), 1);
  std::mt19937 engine(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<double> weights(1 + engine() % 12);
    for (double& weight : weights) weight = static_cast<double>(1 + engine() % (round % 2 == 0 ? 9 : 1000));
    EXPECT_LT(worst_difference(Shares(weights), 5000), 1) << round;
  }
}

TEST(Shares, CountThePlacesBeforeAnyOne) {
  const Shares shares({1, 2.5, std::sqrt(7.0)});
  std::vector<std::int64_t> given(3);
  for (std::int64_t n = 0; n < 5000; ++n) {
    for (std::size_t part = 0; part < 3; ++part) ASSERT_EQ(shares.before(n, part), given[part]) << n;
    ++given[shares.part(n)];
  }
  const std::int64_t far = 7 * shares.period() + 1234;
  for (std::size_t part = 0; part < 3; ++part)
    EXPECT_EQ(shares.before(far, part), 7 * shares.before(shares.period() - 1, part) + shares.before(1234, part) +
                                            (shares.part(shares.period() - 1) == part ? 7 : 0));
}

TEST(Shares, RefuseWeightsThatAreNone) {
  EXPECT_EQ(error_of([] { Shares({1, 0}); }), "the weight of part 1 is 0; it must be finite and above 0");
  EXPECT_NE(error_of([] { Shares({1, std::nan("")}); }), "");
  EXPECT_NE(error_of([] { Shares({}); }), "");
  EXPECT_EQ(error_of([] {
              Shares({1e9, 1});
            }),
            "the weight of part 1 is less than a millionth of all; leave the part out");
  EXPECT_NE(error_of([] { Shares(std::vector<double>(257, 1.0)); }), "");
}

TEST(Concatenated, HasTheExamplesOfAllPartsInOrder) {
  const DatasetPtr all = concatenated({testing::numbered(3), testing::numbered(0), testing::numbered(4)});
  ASSERT_EQ(all->size(), 7);
  const std::vector<std::int64_t> order = {6, 0, 3, 2, 4};
  const std::vector<Example> examples = all->examples(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(examples[i], all->example(order[i]));
    EXPECT_EQ(examples[i].integer("x"), order[i] < 3 ? order[i] : order[i] - 3);
  }
  EXPECT_EQ(all->length(5), 3);
  EXPECT_EQ(error_of([&] { all->example(7); }), "example 7 is outside the data set's 7");
  EXPECT_NE(concatenated({testing::numbered(3)})->fingerprint(), all->fingerprint());
}

TEST(Mixed, KeepsSharesAtEveryStepAndTakesEachExampleOnceARound) {
  const std::vector<std::int64_t> sizes = {5, 40, 11};
  const std::vector<double> weights = {0.5, 0.3, 0.2};
  const SamplerPtr sampler = mixed(sizes, weights, {.rows = 7, .seed = 3});
  EXPECT_EQ(sampler->steps_per_epoch(), 8);
  std::vector<std::int64_t> taken(3);
  std::vector<std::map<std::int64_t, std::set<std::int64_t>>> rounds(3);
  for (std::int64_t step = 0; step < 60; ++step) {
    EXPECT_EQ(sampler->rows(step), 7);
    EXPECT_EQ(sampler->first_sample(step), 7 * step);
    for (std::int64_t row = 0; row < 7; ++row) {
      const std::int64_t example = sampler->example(step, row);
      const std::size_t part = example < 5 ? 0 : example < 45 ? 1 : 2;
      EXPECT_EQ(sampler->epoch(step, row), taken[part] / sizes[part]);
      EXPECT_TRUE(rounds[part][sampler->epoch(step, row)].insert(example).second);
      ++taken[part];
    }
    for (std::size_t part = 0; part < 3; ++part)
      EXPECT_LT(std::fabs(static_cast<double>(taken[part]) - weights[part] * static_cast<double>(7 * step + 7)), 1);
  }
  EXPECT_EQ(rounds[0][0].size(), 5u);
  // Any step is found without those before it.
  EXPECT_EQ(mixed(sizes, weights, {.rows = 7, .seed = 3})->example(50, 6), sampler->example(50, 6));
  int same = 0;
  const SamplerPtr other = mixed(sizes, weights, {.rows = 7, .seed = 4});
  for (std::int64_t row = 0; row < 7; ++row) same += other->example(9, row) == sampler->example(9, row) ? 1 : 0;
  EXPECT_LT(same, 7);
}

TEST(Mixed, OfOnePartEndsEpochsAsItIsAsked) {
  for (const LastRows last : {LastRows::fewer, LastRows::drop, LastRows::join}) {
    const SamplerPtr sampler = mixed({10}, {1}, {.rows = 4, .seed = 3, .last = last});
    std::vector<std::int64_t> rows;
    for (std::int64_t step = 0; step < 3; ++step) rows.push_back(sampler->rows(step));
    EXPECT_EQ(rows, (std::vector<std::int64_t>{4, 4, last == LastRows::fewer ? 2 : 4}));
    EXPECT_EQ(sampler->steps_per_epoch(), last == LastRows::fewer ? 3 : last == LastRows::drop ? 2 : 2.5);
    for (std::int64_t row = 0; row < 4; ++row)
      EXPECT_EQ(sampler->example(1, row),
                mixed({10}, {1}, {.rows = 4, .seed = 3, .last = LastRows::join})->example(1, row));
  }
}

TEST(MixedInStages, KeepsSharesInEveryStageAndRoundsAcrossThem) {
  const std::vector<std::int64_t> sizes = {5, 40, 11};
  const std::vector<MixtureStage> stages = {
      {.end = 13, .weights = {1, 0, 0}}, {.end = 21, .weights = {0.5, 0.3, 0.2}}, {.weights = {0, 1, 3}}};
  const SamplerPtr sampler = mixed_in_stages(sizes, stages, {.rows = 7, .seed = 3});
  std::vector<std::int64_t> taken(3), before(3);
  std::vector<std::map<std::int64_t, std::set<std::int64_t>>> rounds(3);
  std::size_t stage = 0;
  std::int64_t begin = 0;
  for (std::int64_t step = 0; step < 60; ++step) {
    if (stage < 2 && step == stages[stage].end) {
      begin = step;
      ++stage;
      before = taken;
    }
    // Each row by a sampler of its own: a run that was resumed there.
    const SamplerPtr resumed = mixed_in_stages(sizes, stages, {.rows = 7, .seed = 3});
    for (std::int64_t row = 0; row < 7; ++row) {
      const std::int64_t example = sampler->example(step, row);
      EXPECT_EQ(resumed->example(step, row), example);
      const std::size_t part = example < 5 ? 0 : example < 45 ? 1 : 2;
      EXPECT_EQ(sampler->epoch(step, row), taken[part] / sizes[part]);
      EXPECT_TRUE(rounds[part][sampler->epoch(step, row)].insert(example).second) << "once a round";
      ++taken[part];
    }
    const std::vector<double>& weights = stages[stage].weights;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t part = 0; part < 3; ++part)
      EXPECT_LT(std::fabs(static_cast<double>(taken[part] - before[part]) -
                          weights[part] / sum * static_cast<double>(7 * (step - begin) + 7)),
                1)
          << step;
  }
  EXPECT_EQ(rounds[0][0].size(), 5u);
}

TEST(MixedInStages, OfOneStageIsAMixture) {
  const SamplerPtr staged = mixed_in_stages({5, 9}, {{.weights = {2, 1}}}, {.rows = 4, .seed = 2});
  const SamplerPtr plain = mixed({5, 9}, {2, 1}, {.rows = 4, .seed = 2});
  for (std::int64_t step = 0; step < 20; ++step)
    for (std::int64_t row = 0; row < 4; ++row) EXPECT_EQ(staged->example(step, row), plain->example(step, row));
}

TEST(MixedInStages, RefusesStagesThatDoNotFollowEachOther) {
  const auto said = [](const std::vector<MixtureStage>& stages) {
    return error_of([&] { mixed_in_stages({3, 4}, stages, {}); });
  };
  EXPECT_EQ(said({{.end = 0, .weights = {1, 1}}, {.weights = {1, 1}}}),
            "a stage of a mixture ends at step 0, and begins at 0");
  EXPECT_EQ(said({{.end = 5, .weights = {1, 1}}, {.end = 4, .weights = {1, 1}}, {.weights = {1, 1}}}),
            "a stage of a mixture ends at step 4, and begins at 5");
  EXPECT_EQ(said({{.weights = {0, 0}}}), "no data set of the mixture has a weight above 0");
  EXPECT_EQ(said({{.weights = {1}}}), "a mixture has 2 data sets, and 1 weights");
  EXPECT_NE(said({{.weights = {-1, 1}}}), "");
  EXPECT_NE(said({}), "");
}

TEST(Mixed, RefusesPartsThatAreNone) {
  EXPECT_EQ(error_of([] { mixed({3, 0}, {1, 1}, {}); }), "data set 1 of the mixture has no examples");
  EXPECT_EQ(error_of([] { mixed({3}, {1, 1}, {}); }), "a mixture has 1 data sets, and 2 weights");
  EXPECT_NE(error_of([] { mixed({3}, {1}, {.rows = 0}); }), "");
  EXPECT_NE(error_of([] { (void)mixed({3}, {1}, {})->example(-1, 0); }), "");
  EXPECT_NE(error_of([] { (void)mixed({3}, {1}, {})->example(0, 1); }), "");
}

TEST(TokenWindows, HaveTheTokensAfterThemAsLabels) {
  std::vector<std::uint32_t> values(11);
  std::iota(values.begin(), values.end(), 20u);
  const DatasetPtr windows = token_windows(Tokens(values, 50, "eleven"), 4, "eleven");
  ASSERT_EQ(windows->size(), 2);
  const Example second = windows->example(1);
  EXPECT_EQ(std::get<Integers>(second["input_ids"]).values, (std::vector<std::int64_t>{24, 25, 26, 27}));
  EXPECT_EQ(std::get<Integers>(second["labels"]).values, (std::vector<std::int64_t>{25, 26, 27, 28}));
  EXPECT_EQ(windows->length(0), 4);
  EXPECT_EQ(error_of([&] { token_windows(Tokens(values, 50, "eleven"), 11, "eleven"); }),
            "'eleven' has 11 tokens; a window of 11 and its targets need 12");
}

TEST(TokenWindows, OfSeveralShardsAreMixedIntoBatches) {
  const Context context = testing::context();
  const auto shard = [](std::uint32_t token, std::size_t count) {
    return token_windows(Tokens(std::vector<std::uint32_t>(count, token), 10, "shard"), 8, "shard");
  };
  const std::vector<DatasetPtr> shards = {shard(1, 81), shard(2, 801)};
  const auto source =
      make_source(context, concatenated(shards),
                  mixed({shards[0]->size(), shards[1]->size()}, {0.75, 0.25}, {.rows = 4}), next_tokens());
  for (std::int64_t step = 0; step < 20; ++step) {
    const Batch batch = source->load_all(step);
    EXPECT_EQ(batch.weight("tokens"), 32);
    const std::vector<double> ids = testing::doubles(batch["input_ids"]);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1.0), 24) << step;
  }
}

}  // namespace
}  // namespace keel
