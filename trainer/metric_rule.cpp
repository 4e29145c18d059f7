#include "keel/trainer/metric_rule.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::array<std::string_view, 7> kSmaller = {"loss", "perplexity", "error", "mae", "mse", "rmse", "distance"};
constexpr std::array<std::string_view, 16> kGreater = {"accuracy", "exact_match", "f1",  "precision", "recall", "r2",
                                                       "auroc",    "map",         "mrr", "ndcg",      "hr",     "bleu",
                                                       "rouge",    "correct",     "ap",  "top"};

// Whether a word of the name, between _ and after /, is `word`, followed by nothing but digits.
bool has_word(std::string_view name, std::string_view word) {
  for (std::size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const bool begins = at == 0 || name[at - 1] == '_';
    std::size_t end = at + word.size();
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (begins && (end == name.size() || name[end] == '_')) return true;
  }
  return false;
}

}  // namespace

std::optional<MetricMode> mode_by_name(std::string_view metric) {
  const std::string_view name = metric.substr(metric.rfind('/') + 1);
  const auto has = [&](std::string_view word) { return has_word(name, word); };
  if (std::ranges::any_of(kSmaller, has)) return MetricMode::min;
  if (std::ranges::any_of(kGreater, has)) return MetricMode::max;
  return std::nullopt;
}

bool MetricRule::is_better(double value, const std::optional<double>& best) const {
  if (std::isnan(value)) return false;
  if (!best) return true;
  const MetricMode used = mode == MetricMode::automatic ? mode_by_name(metric).value_or(MetricMode::min) : mode;
  return used == MetricMode::min ? value < *best - min_delta : value > *best + min_delta;
}

double MetricRule::value_in(const std::map<std::string, double, std::less<>>& metrics, std::string_view key) const {
  if (const auto place = metrics.find(metric); place != metrics.end()) return place->second;
  std::string names;
  for (const auto& [name, value] : metrics) names += concat(names.empty() ? "" : ", ", name);
  throw Error(concat(key, ": an evaluation gives no '", metric, "'; it gives ", names.empty() ? "nothing" : names));
}

}  // namespace keel
