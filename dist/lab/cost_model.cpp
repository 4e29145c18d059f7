#include "keel/dist/lab/cost_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "keel/dist/lab/student.h"
#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

constexpr std::size_t kTerms = 4;  // base, inside, between, byte
constexpr double kFarthest = 8;
constexpr double kNormalQuantile = 1.959964;     // 95 % of a normal distribution lie within it on both sides
constexpr double kQuartiles = 2 * 0.6744897502;  // from the first to the third, in standard deviations
constexpr double kLeastTime = 1e-3;              // of a measured time: what a model is taken to give at least
using Row = std::array<double, kTerms>;

Row row_of(const CostTerms& terms, double bytes) {
  return {1, terms.inside_steps, terms.between_steps, terms.volume * bytes};
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t t = 0; t < kTerms; ++t) sum += a[t] * b[t];
  return sum;
}

// Solves (R'R) x = right for the terms in `chosen`, where R has these rows; nothing where they are not independent.
std::optional<Row> solve(const std::vector<Row>& rows, const Row& right, unsigned chosen) {
  std::array<std::size_t, kTerms> index = {};
  std::size_t n = 0;
  for (std::size_t t = 0; t < kTerms; ++t)
    if ((chosen >> t) & 1u) index[n++] = t;
  Row scale = {};  // columns of one length, so that a pivot says what depends on what
  std::array<std::array<double, kTerms + 1>, kTerms> a = {};
  for (std::size_t i = 0; i < n; ++i) {
    for (const Row& row : rows) scale[i] += row[index[i]] * row[index[i]];
    scale[i] = std::sqrt(scale[i]);
    if (scale[i] == 0) return {};
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (const Row& row : rows)
      for (std::size_t j = 0; j < n; ++j) a[i][j] += row[index[i]] / scale[i] * row[index[j]] / scale[j];
    a[i][n] = right[index[i]] / scale[i];
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
  for (std::size_t i = 0; i < n; ++i) solution[index[i]] = a[i][n] / a[i][i] / scale[i];
  return solution;
}

double squares(const std::vector<Row>& rows, const std::vector<double>& values, const Row& solution) {
  double sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) sum += std::pow(dot(rows[r], solution) - values[r], 2);
  return sum;
}

// Least squares with no negative term. There are 16 sets of terms that may be zero, so all are tried.
Row fit(const std::vector<Row>& rows, const std::vector<double>& values, unsigned free) {
  Row best = {}, right = {};
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t t = 0; t < kTerms; ++t) right[t] += rows[r][t] * values[r];
  double least = squares(rows, values, best);
  for (unsigned chosen = 1; chosen < 1u << kTerms; ++chosen) {
    if ((chosen & ~free) != 0) continue;
    const std::optional<Row> solution = solve(rows, right, chosen);
    if (!solution || std::any_of(solution->begin(), solution->end(), [](double x) { return x < 0; })) continue;
    const double sum = squares(rows, values, *solution);
    if (sum < least) {
      least = sum;
      best = *solution;
    }
  }
  return best;
}

// What was measured, for the fit of its logarithms: time = known + row * constants.
class LogFit {
 public:
  void add(const Row& row, double known, double us) { points_.push_back({row, known, us}); }
  std::size_t size() const { return points_.size(); }

  // By Gauss and Newton from the least relative errors, with steps that never go up. A mean of two solutions that have
  // no negative term has none.
  Row solve(unsigned free) const {
    std::vector<double> times;
    for (const Point& point : points_) times.push_back(point.us);
    Row best = next(times, free);
    for (int i = 0; i < 50; ++i) {
      const double least = squares(best);
      const Row there = next(times_of(best), free);
      double share = 1;
      Row tried = there;
      while (share > 1e-3 && squares(tried) >= least) {
        share /= 2;
        for (std::size_t t = 0; t < kTerms; ++t) tried[t] = best[t] + share * (there[t] - best[t]);
      }
      if (squares(tried) >= least) break;
      best = tried;
    }
    return best;
  }
  // Sum of the squared logarithms of (time by the model) / (time measured).
  double squares(const Row& constants) const {
    double sum = 0;
    for (const double residual : residuals(constants)) sum += residual * residual;
    return sum;
  }
  std::vector<double> residuals(const Row& constants) const {
    std::vector<double> all = times_of(constants);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::log(all[i] / points_[i].us);
    return all;
  }
  // The derivatives of the logarithms.
  std::vector<Row> rows(const Row& constants) const { return divided(times_of(constants)); }

 private:
  struct Point {
    Row row;
    double known, us;
  };

  std::vector<double> times_of(const Row& constants) const {
    std::vector<double> times;
    for (const Point& point : points_)
      times.push_back(std::max(point.known + dot(point.row, constants), kLeastTime * point.us));
    return times;
  }
  std::vector<Row> divided(const std::vector<double>& times) const {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < times.size(); ++i) {
      rows.push_back(points_[i].row);
      for (double& x : rows.back()) x /= times[i];
    }
    return rows;
  }
  // The least squares of what log(time / us) is near `times` in first order.
  Row next(const std::vector<double>& times, unsigned free) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < times.size(); ++i)
      values.push_back(1 - std::log(times[i] / points_[i].us) - points_[i].known / times[i]);
    return fit(divided(times), values, free);
  }

  std::vector<Point> points_;
};

// Of the logarithms of calls that have these quartiles.
double spread_of(const Timing& timing) {
  const bool has_quartiles = timing.p25_us > 0 && timing.p75_us > timing.p25_us;
  return has_quartiles ? std::log(timing.p75_us / timing.p25_us) / kQuartiles : 0;
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
  LogFit measured;
  std::set<std::pair<int, int>> shapes;
  for (const CostPoint& point : points) {
    const auto terms = cost_terms(collective, algorithm, point.ranks, point.nodes);
    KEEL_CHECK(terms.has_value(), "there is no formula for ", collective, " by ", algorithm);
    KEEL_CHECK(point.us > 0, "a measured time must be above zero, got ", point.us, " us");
    const Row row = row_of(*terms, point.bytes);
    double known_us = 0;
    for (std::size_t t = 0; t < kTerms; ++t)
      if (*places[t]) known_us += row[t] * **places[t];
    measured.add(row, known_us, point.us);
    spreads_.emplace_back(point.bytes, point.spread);
    largest_ = std::max(largest_, point.ranks);
    shapes.insert({point.ranks, point.nodes});
  }
  KEEL_CHECK(measured.size() > 0, "nothing was measured of ", collective, " by ", algorithm);
  // One number of ranks cannot tell what every call costs from what each step does; then each step does.
  if (shapes.size() == 1 && !constants_.base_us && !(constants_.inside_us && constants_.between_us))
    constants_.base_us = 0;
  unsigned free = 0;
  for (unsigned t = 0; t < kTerms; ++t)
    if (!*places[t]) free |= 1u << t;
  const Row solution = measured.solve(free);
  for (unsigned t = 0; t < kTerms; ++t) {
    if (!*places[t]) *places[t] = solution[t];
    if (solution[t] > 0) fitted_ |= 1u << t;
  }
  rows_ = measured.rows(solution);
  const auto freedom = static_cast<std::int64_t>(measured.size()) - std::popcount(fitted_);
  if (freedom < 1) return;
  std::vector<Residual> residuals;
  for (const double value : measured.residuals(solution)) {
    const CostPoint& point = points[residuals.size()];
    residuals.push_back({{point.ranks, point.nodes}, point.measurement, value});
  }
  take_apart(residuals, freedom);
}

// Analysis of variance: the mean residuals of measurements of n points vary by d^2 + s^2 / n, around that of all
// measurements of the same ranks.
void CostModel::take_apart(const std::vector<Residual>& residuals, std::int64_t freedom) {
  struct Mean {
    double sum = 0, count = 0;
    void add(double value) { sum += value, count += 1; }
    double operator()() const { return sum / count; }
  };
  std::map<std::pair<int, int>, std::map<int, Mean>> measurements;  // by ranks and nodes
  double squares = 0;                                               // of points, around their measurements' means
  for (const Residual& each : residuals) {
    measurements[each.shape][each.measurement].add(each.value);
    squares += each.value * each.value;
  }
  double of_means = 0, of_points = 0, repeated = 0;
  for (const auto& [shape, means] : measurements) {
    if (means.size() < 2) continue;
    Mean all;
    for (const auto& [number, mean] : means) all.add(mean());
    for (const auto& [number, mean] : means) {
      const double square = std::pow(mean() - all(), 2);
      of_means += square;
      squares -= mean.count * square;
      of_points += (1 - 1 / all.count) / mean.count;
    }
    repeats_ += static_cast<std::int64_t>(means.size()) - 1;
    repeated += 1;
  }
  freedom -= repeats_;
  if (freedom >= 1) {
    error_ = std::sqrt(std::max(squares, 0.0) / static_cast<double>(freedom));
    quantile_ = student_quantile(freedom);
  }
  if (repeats_ == 0) return;
  quantile_of_repeats_ = student_quantile(repeats_);
  const auto repeats = static_cast<double>(repeats_);
  between_ = std::max(0.0, (of_means - of_points * error_ * error_) / repeats);
  share_of_one_ = repeated / (repeats + repeated);
}

std::optional<double> CostModel::measurement_spread() const {
  if (repeats_ == 0) return {};
  return std::sqrt(between_);
}

// Of the measured size that is nearest.
double CostModel::call_spread(double bytes) const {
  const auto distance = [&](double size) { return std::abs(std::log2((size + 1) / (bytes + 1))); };
  double nearest = INFINITY;
  for (const auto& [size, spread] : spreads_) nearest = std::min(nearest, distance(size));
  double sum = 0, count = 0;
  for (const auto& [size, spread] : spreads_) {
    if (distance(size) > nearest) continue;
    sum += spread * spread;
    ++count;
  }
  return std::sqrt(sum / count);
}

Prediction CostModel::predict(int ranks, int nodes, double bytes) const {
  KEEL_CHECK(nodes >= 1 && nodes <= ranks, ranks, " ranks cannot lie on ", nodes, " nodes");
  Row row = row_of(cost_terms(collective_, algorithm_, ranks, nodes).value(), bytes);
  Prediction prediction;
  prediction.us = dot(row, {*constants_.base_us, *constants_.inside_us, *constants_.between_us, *constants_.byte_us});
  prediction.is_extrapolated = ranks > kFarthest * largest_;
  if (prediction.us <= 0) return prediction;
  for (double& x : row) x /= prediction.us;
  const double leverage = dot(row, solve(rows_, row, fitted_).value_or(Row{}));
  const double doublings = std::max(0.0, std::log2(static_cast<double>(ranks) / largest_));
  const double fit_part = quantile_ * error_ * std::sqrt(1 + leverage) * (1 + doublings),
               measurement_part = quantile_of_repeats_ * std::sqrt(between_ * (1 + share_of_one_)),
               call_part = kNormalQuantile * call_spread(bytes);
  const double width = std::exp(std::hypot(fit_part, measurement_part, call_part));
  prediction.low_us = prediction.us / width;
  prediction.high_us = prediction.us * width;
  return prediction;
}

std::vector<CostPoint> cost_points(std::span<const Report> reports, std::string_view collective,
                                   std::string_view algorithm, std::string_view dtype) {
  std::vector<CostPoint> points;
  for (std::size_t number = 0; number < reports.size(); ++number) {
    const Report& report = reports[number];
    const int nodes = static_cast<int>(std::set<int>(report.nodes.begin(), report.nodes.end()).size());
    for (const Record& record : report.records) {
      const std::optional<Timing>& timing = record.out_of_place ? record.out_of_place : record.in_place;
      if (asked_of(record) != collective || record.algorithm != algorithm || record.dtype != dtype) continue;
      if (record.ranks < 2 || !timing || !(timing->p50_us > 0)) continue;
      points.push_back({static_cast<int>(record.ranks), std::max(nodes, 1), static_cast<double>(record.bytes),
                        timing->p50_us, spread_of(*timing), static_cast<int>(number)});
    }
  }
  return points;
}

}  // namespace keel::lab
