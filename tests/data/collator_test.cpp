#include "keel/data/collator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/data/list_dataset.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

std::vector<CollatedRow> rows_of(const std::vector<Example>& examples) {
  std::vector<CollatedRow> rows;
  for (const Example& example : examples) rows.push_back({example, 100 + std::ssize(rows), std::ssize(rows), 0});
  return rows;
}

Batch collated(const Collator& collator, const std::vector<Example>& examples) {
  const Context context = testing::context();
  Batch batch(context, 0, std::ssize(examples));
  collator(rows_of(examples), {context, 0}, batch);
  return batch;
}

Example with(Value value) { return Example().set("x", std::move(value)); }

std::string stack_refusal(const std::vector<Example>& examples) {
  return error_of([&] { collated(stack(), examples); });
}

TEST(Stack, MakesATensorOfEachFieldAndLeavesTextsOut) {
  const Batch batch = collated(stack(), {Example()
                                             .set("w", 1)
                                             .set("s", "one")
                                             .set("m", Numbers{{2, 1}, {1, 2}})
                                             .set("i", Integers{{2}, {5, -6}})
                                             .set("d", 0.5),
                                         Example()
                                             .set("i", Integers{{2}, {7, 8}})
                                             .set("w", -2)
                                             .set("d", 2)
                                             .set("m", Numbers{{2, 1}, {3, 4}})
                                             .set("s", "two")});
  EXPECT_EQ(batch.signature(), "d f32 (rows)\ni i32 (rows, 2)\nm f32 (rows, 2, 1)\nw i32 (rows)\nweights rows\n");
  EXPECT_EQ(testing::doubles(batch["w"]), (std::vector<double>{1, -2}));
  EXPECT_EQ(testing::doubles(batch["d"]), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(testing::doubles(batch["m"]), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(testing::doubles(batch["i"]), (std::vector<double>{5, -6, 7, 8}));
}

TEST(Stack, MixesWholeAndOtherNumbersAsFloats) {
  const Batch batch = collated(stack(), {with(Integers{{2}, {1, 2}}), with(Numbers{{2}, {0.5, 3}})});
  EXPECT_EQ(batch["x"].dtype(), DType::f32);
  EXPECT_EQ(testing::doubles(batch["x"]), (std::vector<double>{1, 2, 0.5, 3}));
}

TEST(Stack, NamesBothExamplesThatDoNotFitTogether) {
  EXPECT_EQ(stack_refusal({with(Numbers{{2}, {1, 2}}), with(Numbers{{3}, {1, 2, 3}})}),
            "field 'x' of example 101 is numbers (3), and field 'x' of example 100 is numbers (2); rows of one batch "
            "have one shape (pad() fills up)");
  EXPECT_NE(stack_refusal({with(1), with("1")}).find("a text, and field 'x' of example 100 is a whole number"),
            std::string::npos);
  EXPECT_NE(stack_refusal({with("1"), with(1)}), "");
  EXPECT_EQ(stack_refusal({with(1), Example()}), "example 101 has no field 'x', and example 100 has");
  EXPECT_EQ(stack_refusal({Example(), with(1)}),
            "field 'x' of example 101 is a whole number, and example 100 has no such field");
  EXPECT_EQ(stack_refusal({with(1), with(1).set("s", "more")}), "");
}

TEST(Stack, RefusesWholeNumbersThatDoNotFit) {
  constexpr std::int64_t kMost = 2147483647;
  EXPECT_EQ(testing::doubles(collated(stack(), {with(kMost), with(-kMost - 1)})["x"]),
            (std::vector<double>{2147483647., -2147483648.}));
  EXPECT_EQ(stack_refusal({with(kMost), with(kMost + 1)}),
            "field 'x' of example 101 has 2147483648, which does not fit in 32 bits");
  EXPECT_NE(stack_refusal({with(Integers{{1}, {-kMost - 2}})}), "");
}

Example sequence(std::vector<std::int64_t> ids, std::vector<std::int64_t> labels) {
  const auto count = [](const auto& list) { return Dims{std::ssize(list)}; };
  return Example()
      .set("ids", Integers{count(ids), ids})
      .set("labels", Integers{count(labels), labels})
      .set("weight", 0.5);
}

Batch padded(PadOptions options) {
  options.fields = {{"ids"}, {"labels", -100}};
  return collated(pad(options), {sequence({1, 2, 3}, {2, 3, 4}), sequence({}, {}), sequence({9}, {8})});
}

TEST(Pad, FillsUpToTheLongestAndSaysWhatCounts) {
  const Batch batch = padded({.mask = true});
  EXPECT_EQ(batch.signature(),
            "ids i32 (rows, 3)\nlabels i32 (rows, 3)\nlengths i64 (rows)\nmask u8 (rows, 3)\nweight f32 "
            "(rows)\nweights positions rows tokens\n");
  EXPECT_EQ(testing::doubles(batch["ids"]), (std::vector<double>{1, 2, 3, 0, 0, 0, 9, 0, 0}));
  EXPECT_EQ(testing::doubles(batch["labels"]), (std::vector<double>{2, 3, 4, -100, -100, -100, 8, -100, -100}));
  EXPECT_EQ(testing::doubles(batch["mask"]), (std::vector<double>{1, 1, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(testing::doubles(batch["lengths"]), (std::vector<double>{3, 0, 1}));
  EXPECT_EQ(batch.weight("tokens"), 4);
  EXPECT_EQ(batch.weight("positions"), 9);
}

TEST(Pad, FillsUpOnTheLeftToAMultipleOrToALength) {
  EXPECT_EQ(testing::doubles(padded({.left = true, .mask = true})["mask"]),
            (std::vector<double>{1, 1, 1, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(testing::doubles(padded({.left = true})["ids"]), (std::vector<double>{1, 2, 3, 0, 0, 0, 0, 0, 9}));
  EXPECT_EQ(padded({.multiple = 4})["ids"].dim(1), 4);
  EXPECT_EQ(padded({.multiple = 3})["ids"].dim(1), 3);
  EXPECT_EQ(padded({.length = 5})["ids"].dim(1), 5);
  EXPECT_FALSE(padded({})["ids"].dim(1) != 3 || padded({}).has("mask"));
}

TEST(Pad, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { padded({.length = 2}); }),
            "example 100 has 3 elements, more than the 2 that are filled up to; shorten it or enlarge the length");
  EXPECT_NE(error_of([] {
              collated(pad({.fields = {{"ids"}, {"labels"}}}), {sequence({1}, {1, 2})});
            }).find("'labels' of example 100 has 2"),
            std::string::npos);
  EXPECT_NE(error_of([] { collated(pad({.fields = {{"weight"}}}), {sequence({}, {})}); }).find("is a number"),
            std::string::npos);
  EXPECT_NE(error_of([] { collated(pad({.fields = {{"idz"}}}), {sequence({}, {})}); }).find("did you mean 'ids'"),
            std::string::npos);
  EXPECT_NE(error_of([] { collated(pad({.fields = {{"m"}}}), {Example().set("m", Integers{{1, 1}, {1}})}); }), "");
  EXPECT_NE(error_of([] { (void)pad({}); }), "");
  EXPECT_NE(error_of([] { (void)pad({.fields = {{"ids"}}, .multiple = 0}); }), "");
  EXPECT_NE(error_of([] { (void)pad({.fields = {{"ids"}}, .multiple = 4, .length = 6}); }), "");
}

std::vector<SamplerPtr> all_samplers(const DatasetPtr& data, LastRows last) {
  const SamplerOptions options = {.rows = 6, .seed = 11, .last = last};
  return {sequential(data->size(), 6), shuffled(data->size(), options),
          weighted(std::vector<double>(static_cast<std::size_t>(data->size()), 1), options),
          grouped_by_length(data, 2, options)};
}

// The numbers of a row that do not depend on the rows beside it.
struct RowSeen {
  std::int64_t sample, example;
  double x;
  bool operator==(const RowSeen&) const = default;
};
std::vector<RowSeen> rows_seen(const Batch& batch) {
  std::vector<RowSeen> rows;
  for (std::int64_t i = 0; i < batch.rows(); ++i)
    rows.push_back({batch.sample_ids().data<std::int64_t>()[i], batch.examples()[static_cast<std::size_t>(i)],
                    static_cast<double>(batch["x"].data<std::int32_t>()[i])});
  return rows;
}

TEST(Source, AnyDivisionOfAStepsRowsGivesTheSameRows) {
  const Context context = testing::context();
  const DatasetPtr data = testing::numbered(20);
  for (const LastRows last : {LastRows::fewer, LastRows::join, LastRows::drop})
    for (const SamplerPtr& sampler : all_samplers(data, last)) {
      const auto source = make_source(context, data, sampler, pad({.fields = {{"ids"}}}), {.varying = {"ids"}});
      for (std::int64_t step = 0; step < std::min<std::int64_t>(source->steps(), 8); ++step) {
        const std::int64_t rows = source->rows(step);
        const std::vector<RowSeen> whole = rows_seen(source->load(step, {0, rows}));
        for (const RowSeen& row : whole) EXPECT_EQ(static_cast<double>(row.example), row.x);
        // Two cuts: three ranks, some of which may have no rows.
        for (std::int64_t a = 0; a <= rows; ++a)
          for (std::int64_t b = a; b <= rows; ++b) {
            std::vector<RowSeen> joined;
            double tokens = 0;
            for (const Rows range : {Rows{0, a}, Rows{a, b}, Rows{b, rows}}) {
              if (range.begin == range.end) continue;
              const Batch part = make_source(context, data, sampler, pad({.fields = {{"ids"}}}))->load(step, range);
              for (const RowSeen& row : rows_seen(part)) joined.push_back(row);
              tokens += part.weight("tokens");
            }
            EXPECT_EQ(joined, whole);
            EXPECT_EQ(tokens, source->load(step, {0, rows}).weight("tokens"));
          }
      }
    }
}

TEST(Source, NumbersSamplesOfTheRunInOrder) {
  const DatasetPtr data = testing::numbered(20);
  for (const SamplerPtr& sampler : all_samplers(data, LastRows::fewer)) {
    const auto source =
        make_source(testing::context(), data, sampler, pad({.fields = {{"ids"}}}), {.varying = {"ids"}});
    std::int64_t sample = 0;
    for (std::int64_t step = 0; step < 4; ++step)
      for (const RowSeen& row : rows_seen(source->load(step, {0, source->rows(step)}))) EXPECT_EQ(row.sample, sample++);
    EXPECT_EQ(source->steps_per_epoch(), 4);
    EXPECT_EQ(source->fingerprint(), "list");
  }
}

TEST(Source, HandsTheCollatorWhatARowIs) {
  const DatasetPtr data = testing::numbered(5);
  std::vector<CollatedRow> seen;
  std::uint64_t seed = 0;
  const Collator collator = [&](std::span<const CollatedRow> rows, const CollateInfo& info, Batch&) {
    seen.assign(rows.begin(), rows.end());
    seed = info.seed;
  };
  const SamplerPtr sampler = shuffled(5, {.rows = 2, .seed = 8, .last = LastRows::join});
  make_source(testing::context(), data, sampler, collator, {.seed = 77})->load(2, {0, 2});
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seed, 77u);
  for (std::int64_t row = 0; row < 2; ++row) {
    const CollatedRow& found = seen[static_cast<std::size_t>(row)];
    EXPECT_EQ(found.index, sampler->example(2, row));
    EXPECT_EQ(found.sample, 4 + row);
    EXPECT_EQ(found.epoch, row);
    EXPECT_EQ(found.example, data->example(found.index));
  }
}

TEST(Source, RefusesABatchOfOtherFieldsThanTheFirst) {
  const DatasetPtr data = testing::numbered(20);
  const auto load_all = [&](const Collator& collator, const SourceOptions& options) {
    return error_of([&] {
      const auto source = make_source(testing::context(), data, sequential(20, 3), collator, options);
      for (std::int64_t step = 0; step < source->steps(); ++step) source->load(step, {0, source->rows(step)});
    });
  };
  EXPECT_EQ(load_all(pad({.fields = {{"ids"}}}), {.varying = {"ids"}}), "");
  const std::string refusal = load_all(pad({.fields = {{"ids"}}}), {});
  EXPECT_NE(refusal.find("step 1 has\nids i32 (rows, 6)"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("step 0 had\nids i32 (rows, 3)"), std::string::npos) << refusal;
  EXPECT_NE(error_of([&] { (void)make_source(testing::context(), nullptr, sequential(1, 1), stack()); }), "");
}

}  // namespace
}  // namespace keel
