#include "keel/data/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

constexpr double kRounding = 1e-9;  // of a sum of fractions

// As many as the fractions of n, the largest remainders rounded up.
std::vector<std::int64_t> part_sizes(std::int64_t n, const std::vector<double>& fractions) {
  double sum = 0;
  for (const double fraction : fractions) {
    KEEL_CHECK(fraction >= 0 && fraction <= 1, "a part of a data set is a fraction from 0 to 1, not ", fraction);
    sum += fraction;
  }
  KEEL_CHECK(sum <= 1 + kRounding, "the parts of a data set add up to ", sum, ", which is more than 1");
  const auto count = static_cast<double>(n);
  std::vector<std::int64_t> sizes;
  std::vector<double> remainders;
  for (const double fraction : fractions) {
    sizes.push_back(static_cast<std::int64_t>(std::floor(fraction * count * (1 + 1e-15))));
    remainders.push_back(fraction * count - static_cast<double>(sizes.back()));
  }
  const auto all =
      std::min(n, static_cast<std::int64_t>(std::llround(std::floor(sum * count + kRounding * count + 0.5))));
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t part) { return remainders[part]; });
  std::int64_t left = all - std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++sizes[order[i]];
  return sizes;
}

class Part final : public Dataset {
 public:
  Part(DatasetPtr whole, const RandomOrder& order, std::int64_t begin, std::int64_t size, std::uint64_t seed)
      : whole_(std::move(whole)), order_(order), begin_(begin), size_(size), seed_(seed) {}

  std::int64_t size() const override { return size_; }
  Example example(std::int64_t i) const override { return whole_->example(place_of(i)); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<std::int64_t> places;
    for (const std::int64_t i : indices) places.push_back(place_of(i));
    return whole_->examples(places);
  }
  std::int64_t length(std::int64_t i) const override { return whole_->length(place_of(i)); }
  std::string fingerprint() const override {
    return concat("part ", begin_, " to ", begin_ + size_, " by ", seed_, " of ", whole_->fingerprint());
  }

 private:
  std::int64_t place_of(std::int64_t i) const {
    check_index(i);
    return static_cast<std::int64_t>(order_[static_cast<std::uint64_t>(begin_ + i)]);
  }

  DatasetPtr whole_;
  RandomOrder order_;
  std::int64_t begin_, size_;
  std::uint64_t seed_;
};

}  // namespace

std::vector<DatasetPtr> split(const DatasetPtr& whole, const std::vector<double>& fractions, std::uint64_t seed) {
  KEEL_CHECK(whole != nullptr, "there is no data set to be split");
  // An order of nothing does not exist; no part asks for a place of it.
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(whole->size(), 1));
  const RandomOrder order(n, seed ^ fnv1a64("split"), 0);
  std::vector<DatasetPtr> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : part_sizes(whole->size(), fractions)) {
    parts.push_back(std::make_shared<Part>(whole, order, begin, size, seed));
    begin += size;
  }
  return parts;
}

}  // namespace keel
