// Every metric of the catalog has the bits of one process, by any number of ranks and in any batches.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "keel/data/token_batch.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/random.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/trainer/evaluation.h"
#include "tests/support.h"

namespace keel {
namespace {

constexpr std::int64_t kWidth = 4;  // classes, or numbers of a row
constexpr MetricInput kInputs[] = {MetricInput::classes, MetricInput::numbers, MetricInput::lists};

// Rows of all inputs, each a function of its number. Scores are multiples of 1/64, so that sums of squares are exact.
class Numbered final : public BatchSource {
 public:
  Numbered(Context context, std::int64_t all, std::int64_t of_batch)
      : context_(std::move(context)), all_(all), of_batch_(of_batch) {}
  std::int64_t steps() const override { return (all_ + of_batch_ - 1) / of_batch_; }
  std::int64_t rows(std::int64_t step) const override { return std::min(of_batch_, all_ - step * of_batch_); }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    const std::int64_t first = step * of_batch_ + range.begin, count = range.end - range.begin;
    Batch batch(context_, first, count);
    batch.set("scores", drawn("scores", first, count, kWidth, 256, 64));
    batch.set("numbers", drawn("numbers", first, count, kWidth, 256, 64));
    batch.set("score", drawn("score", first, count, 0, 16, 4));
    batch.set("relevance", drawn("relevance", first, count, 0, 3, 1));
    batch.set("class", drawn("class", first, count, kWidth));
    batch.set("group", drawn("group", first, count, 9));
    return batch;
  }

 private:
  std::vector<float> uniform(std::string_view name, std::int64_t first, std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    fill_uniform(values, 1, name, static_cast<std::uint64_t>(first));
    return values;
  }
  // 0 to below - 1, by `unit`.
  Tensor drawn(std::string_view name, std::int64_t first, std::int64_t count, std::int64_t width, float below,
               float unit) const {
    const std::int64_t each = std::max<std::int64_t>(width, 1);
    std::vector<float> values = uniform(name, first * each, count * each);
    for (float& value : values) value = std::floor(value * below) / unit;
    return from_values(context_, values, width == 0 ? Dims{count} : Dims{count, width});
  }
  Tensor drawn(std::string_view name, std::int64_t first, std::int64_t count, float below) const {
    std::vector<std::int64_t> values;
    for (const float value : uniform(name, first, count)) values.push_back(static_cast<std::int64_t>(value * below));
    if (below == kWidth)
      for (std::int64_t i = 0; i < count; ++i)
        if ((first + i) % 10 == 9) values[static_cast<std::size_t>(i)] = kIgnoreTarget;
    return from_values(context_, values, {count});
  }

  Context context_;
  std::int64_t all_, of_batch_;
};

// Every name that the catalog has for this input and two or four classes; of families, with K = 3.
std::vector<std::string> names_of(MetricInput input) {
  std::vector<std::string> names;
  for (const MetricEntry& entry : metric_catalog()) {
    std::string name(entry.name);
    if (name.ends_with("_K")) name.back() = '3';
    if (entry.input == input && MetricList::complaint({name}, input, kWidth).empty()) names.push_back(name);
  }
  return names;
}

Outcome outcome_of(const Batch& batch, MetricInput input) {
  switch (input) {
    case MetricInput::classes:
      return {.outputs = batch["scores"], .targets = batch["class"], .examples = batch.examples()};
    case MetricInput::numbers: return {.outputs = batch["scores"], .targets = batch["numbers"]};
    case MetricInput::lists: break;
  }
  return {
      .outputs = batch["score"], .targets = batch["relevance"], .groups = batch["group"], .examples = batch.examples()};
}

// Its terms are rounded, so that their sum depends on how rows are divided into batches.
constexpr std::string_view kRoundedTerms = "perplexity";

// All results, as bits: NaN is equal to itself.
std::string results_by(int ranks, std::int64_t rows, std::int64_t of_batch, bool with_rounded_terms = true) {
  std::string results;
  run_ranks(ranks, [&](Communicator& group) {
    const Context context = testing::context(1);
    std::string own;
    for (const MetricInput input : kInputs) {
      const MetricList list(names_of(input), input, kWidth);
      const Numbered source(context, rows, of_batch);
      Metrics metrics;
      list.make(metrics);
      evaluate(
          source, source.steps(), context, DType::f32,
          [&](const Batch& batch, Forward&, Metrics& fed) { list.feed(fed, outcome_of(batch, input)); }, metrics,
          group);
      for (const auto& [name, metric] : metrics.all())
        for (const NamedNumber& each : metric->result()) {
          if (name == kRoundedTerms && !with_rounded_terms) continue;
          char bits[sizeof(double)];
          std::memcpy(bits, &each.value, sizeof bits);
          own.append(bits, sizeof bits);
        }
    }
    if (group.rank() == 0) results = own;
  });
  return results;
}

TEST(MetricLaws, EveryMetricHasTheBitsOfOneProcessAtAnyNumberOfRanksAndInAnyBatches) {
  for (const std::int64_t rows : {1, 7, 1001}) {
    const std::string alone = results_by(1, rows, 4);
    EXPECT_GT(alone.size(), 30 * sizeof(double));
    for (const int ranks : {2, 3, 4}) EXPECT_TRUE(results_by(ranks, rows, 4) == alone) << rows << " by " << ranks;
    const std::string exact = results_by(1, rows, 4, false);
    for (const std::int64_t of_batch : {1, 64, 2000})
      EXPECT_TRUE(results_by(2, rows, of_batch, false) == exact) << rows << " in batches of " << of_batch;
  }
}

}  // namespace
}  // namespace keel
