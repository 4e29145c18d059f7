#pragma once
// When a value of an evaluation is better than the best one before.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

enum class MetricMode : unsigned char { automatic, min, max };

// Whether smaller values of a metric are better, by its name ("validation_loss", "others/accuracy"); nothing where the
// name does not say it.
std::optional<MetricMode> mode_by_name(std::string_view metric);

struct MetricRule {
  std::string metric;                       // by its name in records
  MetricMode mode = MetricMode::automatic;  // automatic: as the name says
  double min_delta = 0;                     // smaller gains do not count

  // A value that is NaN is never better, and any other is better than none.
  bool is_better(double value, const std::optional<double>& best) const;
  // An Error that lists what there is, where an evaluation did not give it; `key` is what asked for it.
  double value_in(const std::map<std::string, double, std::less<>>& metrics, std::string_view key) const;
};

}  // namespace keel
