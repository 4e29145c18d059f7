#pragma once
// When the values of an evaluation are better than the best ones before.

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

enum class MetricMode : unsigned char { automatic, min, max };

// Whether smaller values of a metric are better, by its name ("validation_loss", "others/accuracy"); nothing where the
// name does not say it.
std::optional<MetricMode> mode_by_name(std::string_view metric);

using MetricValues = std::map<std::string, double, std::less<>>;

// One value that a rule looks at.
struct MetricTerm {
  std::string metric;                       // by its name in records
  std::vector<std::string> sets = {};       // the mean of the validation sets of these names; none: see value_in()
  MetricMode mode = MetricMode::automatic;  // automatic: as the name says
  double below = std::numeric_limits<double>::infinity(), above = -below;  // others do not count

  // Of an evaluation: of the sets that are named, else what has this very name, else the mean of all sets that have it.
  // An Error that lists what there is, where it gave none of them; `key` is what asked for it.
  double value_in(const MetricValues& values, std::string_view key) const;
  // A value that is NaN, or out of the limits, is never better, and any other is better than none.
  bool is_better(double value, const std::optional<double>& best, double min_delta) const;
};

// Values of which all must be better. As a text, terms joined by "+", each "METRIC[@SET...][:min|:max][<LIMIT|>LIMIT]":
// "f1@dev@test>0.8+loss".
class MetricRule {
 public:
  // An Error for anything else. `mode` is that of terms that do not say theirs; gains up to min_delta do not count.
  static MetricRule parse(std::string_view text, MetricMode mode = MetricMode::automatic, double min_delta = 0);
  const std::string& text() const { return text_; }
  const std::vector<MetricTerm>& terms() const { return terms_; }

  // One for each term; see MetricTerm::value_in().
  std::vector<double> values_in(const MetricValues& values, std::string_view key) const;
  // `best` are the values of one evaluation before, or none.
  bool is_better(const std::vector<double>& values, const std::vector<std::optional<double>>& best) const;

 private:
  std::string text_;
  std::vector<MetricTerm> terms_;
  double min_delta_ = 0;
};

}  // namespace keel
