#include "keel/trainer/metric_rule.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

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

bool is_metric_name(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '/'; });
}

// "f1@dev@test:max>0.8".
MetricTerm parse_term(std::string_view text, MetricMode mode) {
  const auto check = [&](bool holds) {
    KEEL_CHECK(holds, "expects a value of evaluations, or several as in f1@dev@test>0.8+loss, got '", text, "'");
  };
  MetricTerm term;
  term.mode = mode;
  std::string_view left = text;
  if (const std::size_t at = left.find_first_of("<>"); at != std::string_view::npos) {
    const std::string_view number = left.substr(at + 1);
    double& limit = left[at] == '<' ? term.below : term.above;
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), limit);
    check(code == std::errc() && end == number.data() + number.size() && std::isfinite(limit));
    left = left.substr(0, at);
  }
  for (const auto& [word, meant] : {std::pair(":min", MetricMode::min), std::pair(":max", MetricMode::max)})
    if (left.ends_with(word)) {
      term.mode = meant;
      left.remove_suffix(4);
      break;
    }
  std::size_t at = left.find('@');
  term.metric = left.substr(0, at);
  check(is_metric_name(term.metric));
  while (at != std::string_view::npos) {
    const std::size_t end = left.find('@', at + 1);
    term.sets.emplace_back(left.substr(at + 1, end == std::string_view::npos ? end : end - at - 1));
    check(is_metric_name(term.sets.back()));
    at = end;
  }
  return term;
}

}  // namespace

std::optional<MetricMode> mode_by_name(std::string_view metric) {
  const std::string_view name = metric.substr(metric.rfind('/') + 1);
  const auto has = [&](std::string_view word) { return has_word(name, word); };
  if (std::ranges::any_of(kSmaller, has)) return MetricMode::min;
  if (std::ranges::any_of(kGreater, has)) return MetricMode::max;
  return std::nullopt;
}

double MetricTerm::value_in(const MetricValues& values, std::string_view key) const {
  // A loss has its own name where the only set has none.
  const std::string_view of_set = metric == "validation_loss" ? "loss" : std::string_view(metric);
  double total = 0, count = 0;
  const auto take = [&](std::string_view name) {
    const auto place = values.find(name);
    if (place == values.end()) return false;
    total += place->second;
    ++count;
    return true;
  };
  std::string missing;
  for (const std::string& set : sets)
    if (const std::string name = concat(set, '/', of_set); !take(name) && missing.empty()) missing = name;
  if (sets.empty() && !take(metric) && !(metric == "loss" && take("validation_loss"))) {
    for (const auto& [name, value] : values)
      if (const std::size_t end = name.find('/'); end != std::string::npos && name.substr(end + 1) == of_set)
        take(name);
    if (count == 0) missing = metric;
  }
  if (missing.empty()) return total / count;
  std::string names;
  for (const auto& [name, value] : values) names += concat(names.empty() ? "" : ", ", name);
  throw Error(concat(key, ": an evaluation gives no '", missing, "'; it gives ", names.empty() ? "nothing" : names));
}

bool MetricTerm::is_better(double value, const std::optional<double>& best, double min_delta) const {
  if (std::isnan(value) || !(value < below || std::isinf(below)) || !(value > above || std::isinf(above))) return false;
  if (!best) return true;
  const MetricMode used = mode == MetricMode::automatic ? mode_by_name(metric).value_or(MetricMode::min) : mode;
  return used == MetricMode::min ? value < *best - min_delta : value > *best + min_delta;
}

MetricRule MetricRule::parse(std::string_view text, MetricMode mode, double min_delta) {
  MetricRule rule;
  rule.text_ = text;
  rule.min_delta_ = min_delta;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    rule.terms_.push_back(parse_term(text.substr(begin, end - begin), mode));
    begin = end + 1;
  }
  return rule;
}

std::vector<double> MetricRule::values_in(const MetricValues& values, std::string_view key) const {
  std::vector<double> all;
  for (const MetricTerm& each : terms_) all.push_back(each.value_in(values, key));
  return all;
}

bool MetricRule::is_better(const std::vector<double>& values, const std::vector<std::optional<double>>& best) const {
  for (std::size_t i = 0; i < terms_.size(); ++i)
    if (!terms_[i].is_better(values.at(i), best.empty() ? std::nullopt : best.at(i), min_delta_)) return false;
  return true;
}

}  // namespace keel
