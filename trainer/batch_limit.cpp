#include "keel/trainer/batch_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "keel/runtime/error.h"
#include "keel/tasks/task.h"

namespace keel {

BatchLimit BatchLimit::parse(std::string_view text) {
  const bool is_part = text.ends_with('%');
  const std::string_view digits = is_part ? text.substr(0, text.size() - 1) : text;
  double number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = code == std::errc() && end == digits.data() + digits.size();
  const bool is_fine = is_number && (is_part ? number > 0 && number <= 100
                                             : number >= 0 && number == std::floor(number) && number <= 1e15);
  KEEL_CHECK(is_fine, "expects a number of batches or a part of them, such as 10 or 25%, got '", text, "'");
  BatchLimit limit;
  if (is_part) limit.percent = number;
  else limit.batches = static_cast<std::int64_t>(number);
  return limit;
}

std::string BatchLimit::text() const { return percent > 0 ? fmt::format("{}%", percent) : std::to_string(batches); }

std::int64_t BatchLimit::of(std::int64_t all) const {
  if (percent > 0) return static_cast<std::int64_t>(std::ceil(static_cast<double>(all) * percent / 100 - 1e-9));
  return batches == 0 ? all : std::min(batches, all);
}

BatchLimits BatchLimits::parse(const std::vector<std::string>& texts) {
  BatchLimits limits;
  bool has_others = false;
  for (const std::string& each : texts) {
    const std::size_t equals = each.find('=');
    const BatchLimit limit =
        BatchLimit::parse(std::string_view(each).substr(equals == std::string::npos ? 0 : equals + 1));
    if (equals == std::string::npos) {
      KEEL_CHECK(!has_others, "has two limits for all sets; name the sets, as in dev=10");
      has_others = true;
      limits.others = limit;
      continue;
    }
    const std::string set = each.substr(0, equals);
    KEEL_CHECK(!set.empty() && limits.of_set.emplace(set, limit).second,
               "expects a limit for each set, as in dev=10, got '", each, set.empty() ? "'" : "' once more");
  }
  return limits;
}

std::vector<std::string> BatchLimits::texts() const {
  std::vector<std::string> texts = {others.text()};
  for (const auto& [set, limit] : of_set) texts.push_back(concat(set, '=', limit.text()));
  return texts;
}

const BatchLimit& BatchLimits::of(std::string_view set) const {
  const auto place = of_set.find(set);
  return place == of_set.end() ? others : place->second;
}

void BatchLimits::check_sets(const std::vector<ValidationSet>& sets, std::string_view key) const {
  std::string names;
  for (const ValidationSet& each : sets)
    if (!each.name.empty()) names += concat(names.empty() ? "" : ", ", each.name);
  for (const auto& [name, limit] : of_set) {
    const bool is_there =
        std::ranges::any_of(sets, [&set = name](const ValidationSet& each) { return each.name == set; });
    KEEL_CHECK(is_there, key, ": there is no validation set '", name, "'; ",
               names.empty() ? "none has a name" : concat("there are ", names));
  }
}

}  // namespace keel
