// Metrics against scikit-learn and ranx: the golden numbers of tests/golden/metrics.json.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "keel/runtime/file.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/metrics/classes.h"
#include "tests/support.h"

namespace keel {
namespace {

using Golden = nlohmann::json;

Golden golden_metrics() { return Golden::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/metrics.json")); }

template <class T>
std::vector<T> flat(const Golden& values) {
  std::vector<T> all;
  for (const Golden& each : values)
    if (each.is_array()) std::ranges::copy(flat<T>(each), std::back_inserter(all));
    else all.push_back(each.get<T>());
  return all;
}

Tensor floats(const Context& context, const Golden& values, std::int64_t width) {
  const auto all = flat<float>(values);
  const auto rows = static_cast<std::int64_t>(all.size()) / std::max<std::int64_t>(width, 1);
  return from_values(context, all, width == 0 ? Dims{rows} : Dims{rows, width});
}

Tensor wholes(const Context& context, const Golden& values) {
  const auto all = flat<std::int64_t>(values);
  return from_values(context, all, {static_cast<std::int64_t>(all.size())});
}

std::vector<std::int64_t> counted(std::int64_t size) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) numbers[static_cast<std::size_t>(i)] = i;
  return numbers;
}

// Names of the catalog that give these results: "f1_per_class_2" is one of "f1_per_class".
std::vector<std::string> names_of(const Golden& results) {
  std::set<std::string> names;
  for (const auto& [name, value] : results.items()) {
    std::string known = name;
    for (const char* several : {"_per_class", "confusion"})
      if (const auto at = name.find(several); at != std::string::npos)
        known = name.substr(0, at + std::string(several).size());
    names.insert(known);
  }
  return {names.begin(), names.end()};
}

void expect_results(const Golden& golden, MetricInput input, std::int64_t width, const Outcome& outcome,
                    std::set<std::string>& compared) {
  SCOPED_TRACE(golden["name"].get<std::string>());
  const std::vector<std::string> names = names_of(golden["results"]);
  const MetricList list(names, input, width);
  Metrics metrics;
  list.make(metrics);
  list.feed(metrics, outcome);
  join_added(metrics, take_added(metrics));
  std::size_t found = 0;
  for (const auto& [name, metric] : metrics.all())
    for (const NamedNumber& each : metric->result()) {
      const std::string full = each.name.empty() ? name : concat(name, '_', each.name);
      if (!golden["results"].contains(full)) {
        EXPECT_TRUE(std::isnan(each.value)) << full << " is of a class that does not occur";
        continue;
      }
      ++found;
      EXPECT_NEAR(each.value, golden["results"][full].get<double>(), 1e-12) << full;
    }
  EXPECT_EQ(found, golden["results"].size());
  compared.insert(names.begin(), names.end());
}

// Scores by which each guess is the likeliest class.
Tensor scores_for(const Context& context, const std::vector<std::int64_t>& guesses, std::int64_t classes) {
  std::vector<float> scores(guesses.size() * static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < guesses.size(); ++i)
    scores[i * static_cast<std::size_t>(classes) + static_cast<std::size_t>(guesses[i])] = 1;
  return from_values(context, scores, {static_cast<std::int64_t>(guesses.size()), classes});
}

TEST(GoldenMetrics, AreThoseOfScikitLearnAndRanx) {
  const Context context = testing::context(1);
  const Golden file = golden_metrics();
  std::set<std::string> compared;
  for (const Golden& each : file["classes"])
    expect_results(each, MetricInput::classes, each["classes"],
                   {.outputs = scores_for(context, flat<std::int64_t>(each["guesses"]), each["classes"]),
                    .targets = wholes(context, each["targets"])},
                   compared);
  for (const Golden& each : file["areas"]) {
    const std::vector<std::int64_t> examples = counted(std::ssize(each["targets"]));
    expect_results(each, MetricInput::classes, each["classes"],
                   {.outputs = floats(context, each["scores"], each["classes"]),
                    .targets = wholes(context, each["targets"]),
                    .examples = examples},
                   compared);
  }
  for (const Golden& each : file["numbers"])
    expect_results(each, MetricInput::numbers, each["outputs"],
                   {.outputs = floats(context, each["predictions"], each["outputs"]),
                    .targets = floats(context, each["targets"], each["outputs"])},
                   compared);
  for (const Golden& each : file["lists"]) {
    const std::vector<std::int64_t> examples = counted(std::ssize(each["scores"]));
    expect_results(each, MetricInput::lists, 1,
                   {.outputs = floats(context, each["scores"], 0),
                    .targets = floats(context, each["relevance"], 0),
                    .groups = wholes(context, each["groups"]),
                    .examples = examples},
                   compared);
  }
  // Each entry of the catalog is compared, but for exact_match, which neither library has.
  for (const MetricEntry& entry : metric_catalog()) {
    const std::string_view stem = entry.name.substr(0, entry.name.find("_K"));
    const bool is_family = stem != entry.name;
    const bool is_compared = std::ranges::any_of(compared, [&](const std::string& name) {
      return is_family ? name.starts_with(concat(stem, '_')) : name == entry.name;
    });
    EXPECT_TRUE(is_compared || entry.name == "exact_match") << entry.name;
  }
}

}  // namespace
}  // namespace keel
