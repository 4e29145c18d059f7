// Metrics: the same results however batches are shared out, to the bit.

#include "keel/tasks/metric.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/data/token_batch.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

// A list metric whose result shows the order.
class Concatenation : public ListMetric {
 public:
  Concatenation() : ListMetric(1) {}
  void update(std::int64_t example, double value) { add(example, std::span(&value, 1)); }
  std::vector<NamedNumber> result() const override {
    double number = 0;
    for (const std::span<const double> values : in_order()) number = 10 * number + values[0];
    return {{"", number}};
  }
};

void make_all(Metrics& metrics) {
  metrics.make<MeanMetric>("mean");
  metrics.make<Accuracy>("accuracy");
  metrics.make<Concatenation>("list");
}

void feed(Metrics& metrics, const Context& context, std::int64_t batch) {
  metrics.at<MeanMetric>("mean").update(0.1 * static_cast<double>(batch) + 0.7, 3 + 0.1 * static_cast<double>(batch));
  const Tensor guesses = from_values(context, std::vector<std::int64_t>{batch % 3, 1, 5}, {3}),
               targets = from_values(context, std::vector<std::int32_t>{1, 1, kIgnoreTarget}, {3});
  metrics.at<Accuracy>("accuracy").update(guesses, targets);
  metrics.at<Concatenation>("list").update((5 * batch) % 7, static_cast<double>((5 * batch) % 7 + 1));
}

std::vector<double> results(const Metrics& metrics) {
  std::vector<double> all;
  for (const auto& [name, metric] : metrics.all()) all.push_back(metric->result().front().value);
  return all;
}

TEST(Metrics, HaveTheBitsOfOneProcessHoweverBatchesAreSharedOut) {
  const Context context = testing::context(1);
  std::vector<std::vector<double>> outcomes;
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    Metrics first;  // the rank that joins
    make_all(first);
    for (std::int64_t batch = 0; batch < 7; batch += ranks) {
      std::vector<std::string> added;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Metrics others;
        make_all(others);
        Metrics& own = rank == 0 ? first : others;
        feed(own, context, std::min(batch + rank, std::int64_t{6}));
        added.push_back(take_added(own));
      }
      for (std::int64_t i = 0; i < ranks && batch + i < 7; ++i) join_added(first, added[static_cast<std::size_t>(i)]);
    }
    outcomes.push_back(results(first));
  }
  for (const std::vector<double>& outcome : outcomes) EXPECT_EQ(outcome, outcomes.front());
  EXPECT_EQ(outcomes.front(), (std::vector<double>{9.0 / 14, 1234567, outcomes.front()[2]})) << "accuracy, list, mean";
}

TEST(Metrics, OverNothingAreNoNumber) {
  Metrics metrics;
  make_all(metrics);
  EXPECT_TRUE(std::isnan(metrics.at<MeanMetric>("mean").result().front().value));
  EXPECT_TRUE(std::isnan(metrics.at<Accuracy>("accuracy").result().front().value));
  metrics.at<MeanMetric>("mean").update(std::nan(""), 0);
  join_added(metrics, take_added(metrics));
  EXPECT_EQ(metrics.at<MeanMetric>("mean").weight(), 0) << "a mean over nothing poisons no other";
}

TEST(Metrics, RefuseWhatTheyCannotCount) {
  const Context context = testing::context(1);
  Metrics metrics;
  make_all(metrics);
  EXPECT_NE(error_of([&] { metrics.make<MeanMetric>("mean"); }).find("'mean' already"), std::string::npos);
  EXPECT_NE(error_of([&] { metrics.make<MeanMetric>("a mean"); }).find("no name"), std::string::npos);
  EXPECT_NE(error_of([&] { metrics.at<MeanMetric>("other"); }).find("accuracy, list, mean"), std::string::npos);
  EXPECT_FALSE(error_of([&] { metrics.at<MeanMetric>("accuracy"); }).empty()) << "of another kind";
  const Tensor three = from_values(context, std::vector<std::int32_t>{1, 2, 3}, {3}),
               two = from_values(context, std::vector<std::int32_t>{1, 2}, {2});
  EXPECT_NE(error_of([&] { metrics.at<Accuracy>("accuracy").update(three, two); }).find("(3) and i32 (2)"),
            std::string::npos);
  auto& list = metrics.at<Concatenation>("list");
  list.update(4, 1);
  list.update(4, 2);
  const std::string twice = take_added(metrics);
  EXPECT_NE(error_of([&] { join_added(metrics, twice); }).find("example 4"), std::string::npos);
  Metrics others;
  others.make<MeanMetric>("mean");
  EXPECT_FALSE(error_of([&] { join_added(others, take_added(metrics)); }).empty()) << "of other metrics";
}

}  // namespace
}  // namespace keel
