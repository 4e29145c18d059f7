#pragma once
// What a collective will cost on more ranks: a model that is linear in steps and bytes, fitted to measurements.
//
// time = base + inside steps * a_i + steps between nodes * a_e + volume * S * b (latency and bandwidth: Hockney 1994;
// steps and volumes of algorithms: Thakur, Rabenseifner and Gropp 2005). Constants that are not given are fitted, none
// of them negative, such that the sum of the squared logarithms of (time by the model) / (time measured) is least.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/lab/report.h"

namespace keel::lab {

// The terms of a collective among n ranks on N nodes: steps one after the other, inside nodes and between them, and the
// volume that passes a rank, in units of S.
struct CostTerms {
  double inside_steps = 0, between_steps = 0, volume = 0;
};
// Nothing where keel has no formula: for what a library chooses by itself, and for collectives without algorithms.
std::optional<CostTerms> cost_terms(std::string_view collective, std::string_view algorithm, int ranks, int nodes);

struct CostPoint {
  int ranks = 1, nodes = 1;
  double bytes = 0, us = 0;  // the median of the calls that were timed
  double spread = 0;         // of these calls: the standard deviation of the logarithms of their times
  int measurement = 0;       // which one it comes from, of several at different times
};

// In microseconds; `byte_us` is for each byte. Those that are known are not fitted.
struct CostConstants {
  std::optional<double> base_us = {}, inside_us = {}, between_us = {}, byte_us = {};
};

struct Prediction {
  double us = 0;
  // 95 of 100 calls lie between these; see CostModel.
  double low_us = 0, high_us = 0;
  bool is_extrapolated = false;  // beyond 8 times the largest number of ranks that was measured
};

// Points differ from the model by a factor, the calls of a point from its median by another one, and a measurement as a
// whole from others of the same ranks at other times by a third. All are taken for log-normal, with the deviations s
// (of the residuals of the fit), c (of calls of that size) and d. Then
//
//   low, high = us / w, us * w    with (log w)^2 = t^2 s^2 (1 + h) + u^2 d^2 (1 + 1 / m) + 1.96^2 c^2
//
// where t is Student's quantile for the degrees of freedom that the fit has left, and h the leverage of what is
// predicted (the prediction interval of linear regression). A fit that has none left knows no s, and counts none. u is
// Student's quantile for the m - 1 degrees of freedom of m measurements of the same ranks, of which the mean residuals
// vary by d^2 beyond what s explains. Where no ranks were measured twice d is not known, and counts as 0.
// Beyond the ranks that were measured s counts as much again for each doubling, since formulas leave out what only many
// ranks have.
class CostModel {
 public:
  // An Error where there is no formula, or there are no points.
  CostModel(std::string_view collective, std::string_view algorithm, std::span<const CostPoint> points,
            const CostConstants& known = {});
  Prediction predict(int ranks, int nodes, double bytes) const;
  // All constants, given and fitted.
  const CostConstants& constants() const { return constants_; }
  double relative_error() const { return error_; }  // s
  // d; nothing where no number of ranks was measured several times.
  std::optional<double> measurement_spread() const;

 private:
  // Base, steps inside nodes, steps between them, and bytes.
  using Terms = std::array<double, 4>;

  struct Residual {
    std::pair<int, int> shape;  // ranks, nodes
    int measurement;
    double value;  // log((time by the model) / (time measured))
  };

  double call_spread(double bytes) const;
  void take_apart(const std::vector<Residual>& residuals, std::int64_t freedom);

  std::string collective_, algorithm_;
  CostConstants constants_;
  double error_ = 0, quantile_ = 0, quantile_of_repeats_ = 0;
  double between_ = 0;                              // d^2
  std::int64_t repeats_ = 0;                        // measurements, beyond the first, of the same ranks
  double share_of_one_ = 0;                         // 1 / m
  std::vector<Terms> rows_;                         // the terms of each point, by the time that the model gives it
  unsigned fitted_ = 0;                             // terms, as bits
  std::vector<std::pair<double, double>> spreads_;  // of points: bytes, and the calls' spread
  int largest_ = 1;                                 // number of ranks that was measured
};

// Median times and quartiles of records of that kind, among two ranks or more, out of place where a report has such
// times. Each report is a measurement.
std::vector<CostPoint> cost_points(std::span<const Report> reports, std::string_view collective,
                                   std::string_view algorithm, std::string_view dtype);

}  // namespace keel::lab
