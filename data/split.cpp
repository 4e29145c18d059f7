#include "keel/data/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "keel/data/walk.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/random.h"
#include "keel/runtime/xxh3.h"

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
  std::string place(std::int64_t i) const override { return whole_->place(place_of(i)); }
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

class Chosen final : public Dataset {
 public:
  Chosen(DatasetPtr whole, std::vector<std::int64_t> numbers) : whole_(std::move(whole)), numbers_(std::move(numbers)) {
    KEEL_CHECK(whole_ != nullptr, "there is no data set to choose examples of");
    for (const std::int64_t number : numbers_)
      KEEL_CHECK(0 <= number && number < whole_->size(), "example ", number, " is outside the data set's ",
                 whole_->size());
  }

  std::int64_t size() const override { return std::ssize(numbers_); }
  Example example(std::int64_t i) const override { return whole_->example(number_of(i)); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<std::int64_t> numbers;
    for (const std::int64_t i : indices) numbers.push_back(number_of(i));
    return whole_->examples(numbers);
  }
  std::int64_t length(std::int64_t i) const override { return whole_->length(number_of(i)); }
  std::string place(std::int64_t i) const override { return whole_->place(number_of(i)); }
  std::string fingerprint() const override {
    const Hash128 hash = xxh3(std::as_bytes(std::span(numbers_)));
    return concat("chosen ", size(), ' ', hash.high, ' ', hash.low, " of ", whole_->fingerprint());
  }

 private:
  std::int64_t number_of(std::int64_t i) const {
    check_index(i);
    return numbers_[static_cast<std::size_t>(i)];
  }

  DatasetPtr whole_;
  std::vector<std::int64_t> numbers_;
};

// Finite ones alone.
std::optional<double> number_named(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
  return is_number ? std::optional(number) : std::nullopt;
}

// Which part each value belongs to.
class ValueParts {
 public:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  explicit ValueParts(const std::vector<std::vector<std::string>>& values) {
    for (std::size_t part = 0; part < values.size(); ++part)
      for (const std::string& value : values[part]) {
        const auto number = number_named(value);
        const bool is_new = part_of_text_.emplace(value, part).second &&
                            (!number || part_of_number_.emplace(*number, Named{part, value}).second);
        KEEL_CHECK(is_new, "the value '", printable(value, 64), "' is named twice; a row belongs to one part");
      }
  }

  // The name that a part has for the value, and the part; without one, the value as it is shown.
  std::pair<std::string, std::size_t> find(const Value& value) const {
    if (const auto* text = std::get_if<std::string>(&value)) {
      const auto found = part_of_text_.find(*text);
      return {*text, found == part_of_text_.end() ? kNone : found->second};
    }
    const auto* whole = std::get_if<std::int64_t>(&value);
    const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
    const auto found = part_of_number_.find(number);
    if (found != part_of_number_.end()) return {found->second.name, found->second.part};
    return {whole != nullptr ? std::to_string(*whole) : concat(number), kNone};
  }

  const std::map<std::string, std::size_t>& all() const { return part_of_text_; }

 private:
  struct Named {
    std::size_t part;
    std::string name;
  };
  std::map<std::string, std::size_t> part_of_text_;
  std::map<double, Named> part_of_number_;
};

// Up to some, with commas.
std::string listed_values(const std::set<std::string>& values) {
  constexpr std::size_t kMost = 8;
  std::string text;
  std::size_t shown = 0;
  for (const std::string& value : values) {
    if (++shown > kMost) return text + ", ...";
    text += concat(text.empty() ? "" : ", ", printable(value, 32));
  }
  return text;
}

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

DatasetPtr chosen(DatasetPtr whole, std::vector<std::int64_t> numbers) {
  return std::make_shared<Chosen>(std::move(whole), std::move(numbers));
}

ColumnParts parts_by_column(const Dataset& whole, const std::string& column,
                            const std::vector<std::vector<std::string>>& values) {
  constexpr std::size_t kMostShown = 100;
  const ValueParts named(values);
  ColumnParts made = {.parts = std::vector<std::vector<std::int64_t>>(values.size()), .rest = {}};
  std::set<std::string> met, others;  // values that a part names, and some that none does
  std::vector<std::pair<std::string, std::size_t>> round(static_cast<std::size_t>(kWalkRound));
  walk(
      whole,
      [&](std::int64_t first, const std::vector<Example>& examples) {
        for (std::size_t i = 0; i < examples.size(); ++i) {
          const std::int64_t number = first + static_cast<std::int64_t>(i);
          try {
            const Value& value = examples[i][column];
            KEEL_CHECK(!std::holds_alternative<Numbers>(value) && !std::holds_alternative<Integers>(value) &&
                           !std::holds_alternative<Nested>(value),
                       "field '", printable(column, 64), "' is ", kind_of(value),
                       ", and a split goes by single values");
            round[static_cast<std::size_t>(number % kWalkRound)] = named.find(value);
          } catch (const Error& error) { throw Error(concat("example ", number, " (from 0 on): "), error); }
        }
      },
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t number = begin; number < end; ++number) {
          auto& [value, part] = round[static_cast<std::size_t>(number % kWalkRound)];
          const bool is_named = part != ValueParts::kNone;
          (is_named ? made.parts[part] : made.rest).push_back(number);
          if (is_named || others.size() < kMostShown) (is_named ? met : others).insert(std::move(value));
        }
      });
  for (const auto& [value, part] : named.all())
    if (!met.contains(value)) {
      others.insert(met.begin(), met.end());
      throw Error(concat("no row has '", printable(value, 64), "' in the column '", printable(column, 64),
                         "', which has ", others.empty() ? "nothing" : listed_values(others)));
    }
  return made;
}

}  // namespace keel
