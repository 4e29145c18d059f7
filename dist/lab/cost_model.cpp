#include "keel/dist/lab/cost_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

constexpr int kTerms = 4;  // base, inside, between, byte
constexpr double kFarthest = 8;
using Row = std::array<double, kTerms>;

Row row_of(const CostTerms& terms, double bytes) {
  return {1, terms.inside_steps, terms.between_steps, terms.volume * bytes};
}

// Solves the normal equations for the terms in `chosen`; nothing where they are not independent.
std::optional<Row> solve(const std::vector<Row>& rows, const std::vector<double>& values, unsigned chosen) {
  std::vector<int> index;
  for (int t = 0; t < kTerms; ++t)
    if ((chosen >> t) & 1u) index.push_back(t);
  const std::size_t n = index.size();
  std::vector<double> scale(n);  // columns of one length, so that a pivot says what depends on what
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1));
  for (std::size_t i = 0; i < n; ++i) {
    for (const Row& row : rows)
      scale[i] += row[static_cast<std::size_t>(index[i])] * row[static_cast<std::size_t>(index[i])];
    scale[i] = std::sqrt(scale[i]);
    if (scale[i] == 0) return {};
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double left = rows[r][static_cast<std::size_t>(index[i])] / scale[i];
      for (std::size_t j = 0; j < n; ++j) a[i][j] += left * rows[r][static_cast<std::size_t>(index[j])] / scale[j];
      a[i][n] += left * values[r];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < n; ++k)
      if (std::abs(a[k][i]) > std::abs(a[pivot][i])) pivot = k;
    std::swap(a[i], a[pivot]);
    if (std::abs(a[i][i]) < 1e-10) return {};
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  Row solution = {};
  for (std::size_t i = 0; i < n; ++i) solution[static_cast<std::size_t>(index[i])] = a[i][n] / a[i][i] / scale[i];
  return solution;
}

double squares(const std::vector<Row>& rows, const std::vector<double>& values, const Row& solution) {
  double sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double error = -values[r];
    for (std::size_t t = 0; t < kTerms; ++t) error += rows[r][t] * solution[t];
    sum += error * error;
  }
  return sum;
}

// Least squares with no negative term. There are 16 sets of terms that may be zero, so all are tried.
Row fit(const std::vector<Row>& rows, const std::vector<double>& values, unsigned free) {
  Row best = {};
  double least = squares(rows, values, best);
  for (unsigned chosen = 1; chosen < 1u << kTerms; ++chosen) {
    if ((chosen & ~free) != 0) continue;
    const std::optional<Row> solution = solve(rows, values, chosen);
    if (!solution || std::any_of(solution->begin(), solution->end(), [](double x) { return x < 0; })) continue;
    const double sum = squares(rows, values, *solution);
    if (sum < least) {
      least = sum;
      best = *solution;
    }
  }
  return best;
}

}  // namespace

std::optional<CostTerms> cost_terms(std::string_view collective, std::string_view algorithm, int ranks, int nodes) {
  const bool is_all_reduce = collective == "all_reduce";
  if (!is_all_reduce && collective != "reduce_scatter" && collective != "all_gather") return {};
  const double n = ranks, among_nodes = nodes;
  const double times = is_all_reduce ? 2 : 1;  // there, and back
  const double rounds = std::ceil(std::log2(n)), node_rounds = std::ceil(std::log2(among_nodes));
  if (algorithm == "ring" || algorithm == "direct" || algorithm == "ordered")
    return CostTerms{times * (n - among_nodes), times * (among_nodes - 1), times * (n - 1) / n};
  if (algorithm == "rhd") return CostTerms{times * (rounds - node_rounds), times * node_rounds, times * (n - 1) / n};
  if (!is_all_reduce) return {};
  // Whole tensors on every edge, one after the other at the root.
  if (algorithm == "tree") return CostTerms{2 * (rounds - node_rounds), 2 * node_rounds, 2 * rounds};
  if (algorithm == "flat") return CostTerms{nodes == 1 ? 2.0 : 0.0, nodes == 1 ? 0.0 : 2.0, 2 * (n - 1)};
  return {};
}

CostModel::CostModel(std::string_view collective, std::string_view algorithm, std::span<const CostPoint> points,
                     const CostConstants& known)
    : collective_(collective), algorithm_(algorithm), constants_(known) {
  const std::array<std::optional<double>*, kTerms> places = {&constants_.base_us, &constants_.inside_us,
                                                             &constants_.between_us, &constants_.byte_us};
  std::vector<Row> rows;
  std::vector<double> values;
  std::set<std::pair<int, int>> shapes;
  for (const CostPoint& point : points) {
    const auto terms = cost_terms(collective, algorithm, point.ranks, point.nodes);
    KEEL_CHECK(terms.has_value(), "there is no formula for ", collective, " by ", algorithm);
    KEEL_CHECK(point.us > 0, "a measured time must be above zero, got ", point.us, " us");
    Row row = row_of(*terms, point.bytes);
    double value = point.us;
    for (std::size_t t = 0; t < kTerms; ++t)
      if (*places[t]) value -= row[t] * **places[t];
    for (double& x : row) x /= point.us;
    rows.push_back(row);
    values.push_back(value / point.us);
    largest_ = std::max(largest_, point.ranks);
    shapes.insert({point.ranks, point.nodes});
  }
  KEEL_CHECK(!rows.empty(), "nothing was measured of ", collective, " by ", algorithm);
  // One number of ranks cannot tell what every call costs from what each step does; then each step does.
  if (shapes.size() == 1 && !constants_.base_us && !(constants_.inside_us && constants_.between_us))
    constants_.base_us = 0;
  unsigned free = 0;
  for (unsigned t = 0; t < kTerms; ++t)
    if (!*places[t]) free |= 1u << t;
  const Row solution = fit(rows, values, free);
  for (std::size_t t = 0; t < kTerms; ++t)
    if (!*places[t]) *places[t] = solution[t];
  const auto left = static_cast<double>(rows.size()) - std::popcount(free);
  error_ = std::sqrt(squares(rows, values, solution) / std::max(left, 1.0));
}

double CostModel::time_of(int ranks, int nodes, double bytes) const {
  const Row row = row_of(cost_terms(collective_, algorithm_, ranks, nodes).value(), bytes);
  return row[0] * *constants_.base_us + row[1] * *constants_.inside_us + row[2] * *constants_.between_us +
         row[3] * *constants_.byte_us;
}

Prediction CostModel::predict(int ranks, int nodes, double bytes) const {
  KEEL_CHECK(nodes >= 1 && nodes <= ranks, ranks, " ranks cannot lie on ", nodes, " nodes");
  Prediction prediction;
  prediction.us = time_of(ranks, nodes, bytes);
  const double doublings = std::max(0.0, std::log2(static_cast<double>(ranks) / largest_));
  const double spread = 2 * error_ * (1 + doublings);
  prediction.low_us = prediction.us * std::max(0.0, 1 - spread);
  prediction.high_us = prediction.us * (1 + spread);
  prediction.is_extrapolated = ranks > kFarthest * largest_;
  return prediction;
}

std::vector<CostPoint> cost_points(const Report& report, std::string_view collective, std::string_view algorithm,
                                   std::string_view dtype) {
  const int nodes = static_cast<int>(std::set<int>(report.nodes.begin(), report.nodes.end()).size());
  std::vector<CostPoint> points;
  for (const Record& record : report.records) {
    const std::optional<Timing>& timing = record.out_of_place ? record.out_of_place : record.in_place;
    if (record.collective != collective || record.algorithm != algorithm || record.dtype != dtype) continue;
    if (!timing || !(timing->p50_us > 0)) continue;
    points.push_back(
        {static_cast<int>(record.ranks), std::max(nodes, 1), static_cast<double>(record.bytes), timing->p50_us});
  }
  return points;
}

}  // namespace keel::lab
