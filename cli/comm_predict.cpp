#include "comm_predict.h"

#include <fmt/core.h>

#include <set>
#include <tuple>

#include "keel/dist/lab/cost_model.h"

namespace keel::cli {
namespace {

using SeriesKey = std::tuple<std::string, std::string, std::string>;  // collective, algorithm, dtype

std::string constants_text(const lab::CostModel& model) {
  const lab::CostConstants& found = model.constants();
  const std::string bandwidth =
      *found.byte_us > 0 ? fmt::format("{:.2f} GB/s", 1e-3 / *found.byte_us) : "no time a byte";
  return fmt::format("{:.2f} us, {:.2f} us a step inside nodes, {:.2f} us between them, {}; points lie {:.0f}% off",
                     *found.base_us, *found.inside_us, *found.between_us, bandwidth, 100 * model.relative_error());
}

// How far one measurement lies from another, of the same ranks.
std::string repeats_text(const lab::CostModel& model) {
  const std::optional<double> spread = model.measurement_spread();
  return spread
             ? fmt::format("# measurements of the same ranks lie {:.0f}% apart\n", 100 * *spread)
             : "# measured once: how far another measurement lies is not known, and not in low and high; give further "
               "files of the same ranks\n";
}

std::string table(const SeriesKey& key, const std::vector<lab::CostPoint>& points, const std::vector<int>& ranks,
                  int ranks_per_node) {
  const auto& [collective, algorithm, dtype] = key;
  const lab::CostModel model(collective, algorithm, points);
  std::string text = fmt::format("# {} {} {}: {}\n", collective, algorithm, dtype, constants_text(model));
  text += repeats_text(model);
  text += fmt::format("#{:>11} {:>7} {:>7} {:>12} {:>12} {:>12}\n", "size (B)", "ranks", "nodes", "time (us)",
                      "low (us)", "high (us)");
  std::set<double> sizes;
  for (const lab::CostPoint& point : points) sizes.insert(point.bytes);
  for (const double bytes : sizes)
    for (const int n : ranks) {
      const int nodes = ranks_per_node == 0 ? 1 : (n + ranks_per_node - 1) / ranks_per_node;
      const lab::Prediction prediction = model.predict(n, nodes, bytes);
      text += fmt::format(" {:>11.0f} {:>7} {:>7} {:>12.1f} {:>12.1f} {:>12.1f}{}\n", bytes, n, nodes, prediction.us,
                          prediction.low_us, prediction.high_us, prediction.is_extrapolated ? "  extrapolated" : "");
    }
  return text;
}

}  // namespace

std::string prediction_text(const std::vector<lab::Report>& reports, const std::vector<int>& ranks,
                            int ranks_per_node) {
  std::set<SeriesKey> series;
  for (const lab::Report& report : reports)
    for (const lab::Record& record : report.records) series.insert({asked_of(record), record.algorithm, record.dtype});
  std::string text;
  std::set<std::string> without;
  for (const SeriesKey& key : series) {
    const auto& [collective, algorithm, dtype] = key;
    if (!lab::cost_terms(collective, algorithm, 2, 1)) {
      without.insert(fmt::format("# no formula: {} by {}\n", collective, algorithm));
      continue;
    }
    const std::vector<lab::CostPoint> points = lab::cost_points(reports, collective, algorithm, dtype);
    if (!points.empty()) text += table(key, points, ranks, ranks_per_node);
  }
  for (const std::string& line : without) text += line;
  return text.empty() ? "# nothing to predict from: no record is of two ranks or more\n" : text;
}

}  // namespace keel::cli
