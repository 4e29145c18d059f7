#pragma once
// What a collective will cost on more ranks: a model that is linear in steps and bytes, fitted to measurements.
//
// time = base + inside steps * a_i + steps between nodes * a_e + volume * S * b (latency and bandwidth: Hockney 1994;
// steps and volumes of algorithms: Thakur, Rabenseifner and Gropp 2005). Constants that are not given are fitted, none
// of them negative, such that the sum of squared relative errors is least.

#include <optional>
#include <span>
#include <string>
#include <string_view>

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
  double bytes = 0, us = 0;
};

// In microseconds; `byte_us` is for each byte. Those that are known are not fitted.
struct CostConstants {
  std::optional<double> base_us = {}, inside_us = {}, between_us = {}, byte_us = {};
};

struct Prediction {
  double us = 0;
  // Two standard deviations of the relative errors of the fit, and as much again for each doubling of the ranks beyond
  // those that were measured.
  double low_us = 0, high_us = 0;
  bool is_extrapolated = false;  // beyond 8 times the largest number of ranks that was measured
};

class CostModel {
 public:
  // An Error where there is no formula, or there are no points.
  CostModel(std::string_view collective, std::string_view algorithm, std::span<const CostPoint> points,
            const CostConstants& known = {});
  Prediction predict(int ranks, int nodes, double bytes) const;
  // All constants, given and fitted.
  const CostConstants& constants() const { return constants_; }
  double relative_error() const { return error_; }  // standard deviation

 private:
  double time_of(int ranks, int nodes, double bytes) const;

  std::string collective_, algorithm_;
  CostConstants constants_;
  double error_ = 0;
  int largest_ = 1;  // number of ranks that was measured
};

// Median times of a report's records of that kind, out of place where the report has such times.
std::vector<CostPoint> cost_points(const Report& report, std::string_view collective, std::string_view algorithm,
                                   std::string_view dtype);

}  // namespace keel::lab
