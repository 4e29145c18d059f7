#include "keel/tasks/metric.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/metrics/values.h"

namespace keel {
namespace {

template <class T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Takes `count` values from the front of `bytes`.
template <class T>
std::vector<T> take_values(std::string_view& bytes, std::size_t count) {
  KEEL_CHECK(bytes.size() >= count * sizeof(T), "what a metric was told ends too early");
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

}  // namespace

std::string SumMetric::take() {
  std::string bytes = bytes_of(std::span<const double>(batch_));
  std::ranges::fill(batch_, 0.0);
  return bytes;
}

void SumMetric::join(std::string_view added) {
  const std::vector<double> sums = take_values<double>(added, added.size() / sizeof(double));
  joined_.resize(std::max(joined_.size(), sums.size()));
  for (std::size_t i = 0; i < sums.size(); ++i) joined_[i] += sums[i];
}

void ListMetric::add(std::int64_t example, std::span<const double> values) {
  KEEL_CHECK(std::ssize(values) == static_cast<std::ptrdiff_t>(width_), "a metric of ", width_,
             " values an example was fed with ", values.size());
  KEEL_CHECK(example >= 0, "a metric that needs all examples was fed with one that has no number");
  taken_.push_back(example);
  batch_.insert(batch_.end(), values.begin(), values.end());
}

std::string ListMetric::take() {
  const auto count = static_cast<std::int64_t>(taken_.size());
  std::string bytes = bytes_of(std::span(&count, 1)) + bytes_of(std::span<const std::int64_t>(taken_)) +
                      bytes_of(std::span<const double>(batch_));
  taken_.clear();
  batch_.clear();
  return bytes;
}

void ListMetric::join(std::string_view added) {
  const auto count = static_cast<std::size_t>(take_values<std::int64_t>(added, 1).front());
  for (const std::int64_t example : take_values<std::int64_t>(added, count)) {
    KEEL_CHECK(places_.emplace(example, places_.size()).second, "example ", example,
               " was fed to a metric twice; no example may count twice");
  }
  const std::vector<double> values = take_values<double>(added, count * width_);
  joined_.insert(joined_.end(), values.begin(), values.end());
}

std::vector<std::span<const double>> ListMetric::in_order() const {
  std::vector<std::span<const double>> rows;
  for (const auto& [example, place] : places_) rows.push_back(std::span(joined_).subspan(place * width_, width_));
  return rows;
}

void MeanMetric::update(double mean, double weight, std::size_t part) {
  if (weight == 0) return;
  add(2 * part, mean * weight);
  add(2 * part + 1, weight);
}

std::vector<NamedNumber> MeanMetric::result() const {
  double result = 0;
  bool has_weight = false;
  for (std::size_t part = 0; 2 * part < sums(); ++part) {
    if (!(weight(part) > 0)) continue;
    result += ratio_of(sum(2 * part), weight(part));
    has_weight = true;
  }
  return {{"", has_weight ? result : std::numeric_limits<double>::quiet_NaN()}};
}

void Accuracy::update(const Tensor& guesses, const Tensor& targets) {
  const std::vector<CountedTarget> counted = counted_targets(guesses, targets);
  add(0, static_cast<double>(
             std::ranges::count_if(counted, [](const CountedTarget& each) { return each.guess == each.target; })));
  add(1, static_cast<double>(counted.size()));
}

std::vector<NamedNumber> Accuracy::result() const { return {{"", ratio_of(sum(0), sum(1))}}; }

void Metrics::insert(const std::string& name, std::unique_ptr<Metric> metric) {
  KEEL_CHECK(is_name(name), "'", printable(name, 64), "' is no name of a metric: letters, digits and _ are possible");
  KEEL_CHECK(!metrics_.contains(name), "there is a metric '", name, "' already");
  metrics_.emplace(name, std::move(metric));
}

Metric* Metrics::find(std::string_view name) const {
  const auto place = metrics_.find(name);
  return place == metrics_.end() ? nullptr : place->second.get();
}

void Metrics::refuse(std::string_view name) const {
  std::string others;
  for (const auto& [each, metric] : metrics_) others += concat(others.empty() ? "" : ", ", each);
  throw Error(concat("there is no metric '", printable(name, 64), "' of that kind; there are ",
                     others.empty() ? std::string("none") : others));
}

std::string take_added(Metrics& metrics) {
  std::string bytes;
  for (const auto& [name, metric] : metrics.all()) {
    const std::string own = metric->take();
    const auto size = static_cast<std::int64_t>(own.size());
    bytes += bytes_of(std::span(&size, 1)) + own;
  }
  return bytes;
}

void join_added(Metrics& metrics, std::string_view added) {
  for (const auto& [name, metric] : metrics.all()) {
    const auto size = static_cast<std::size_t>(take_values<std::int64_t>(added, 1).front());
    KEEL_CHECK(size <= added.size(), "what a metric was told ends too early");
    metric->join(added.substr(0, size));
    added.remove_prefix(size);
  }
  KEEL_CHECK(added.empty(), "ranks have different metrics");
}

}  // namespace keel
