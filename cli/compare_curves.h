#pragma once
// The part of `keel compare` that shows the loss of variants over steps, bytes and seconds.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "curve.h"
#include "keel/trainer/curve_file.h"
#include "keel/trainer/curve_means.h"

namespace keel::cli {

// As typed.
struct CurveArguments {
  std::vector<int> seeds;                                        // none: the configuration's
  std::string folder;                                            // for the files; empty: there are none
  double until_loss = std::numeric_limits<double>::quiet_NaN();  // not asked for
  bool are_asked_for() const { return !seeds.empty() || !folder.empty() || until_loss == until_loss; }
};

// A line for each variant: its loss in the end, what a step costs and, where that is asked for, what it takes until the
// loss is below `until_loss`.
std::string curves_text(std::span<const MeanCurve> curves, double until_loss, int width);

// What the loss is drawn over.
enum class CurveAxis { bytes, seconds };
// The loss of training and, where it has been evaluated, that of the validation set, each with the standard deviation
// of seeds as a band.
std::vector<Panel> loss_panels(std::span<const MeanCurve> curves, CurveAxis axis);

// "400 steps of 32 rows by 4 ranks, 3 seeds; every message takes 200 us, at least".
std::string curves_title(const CurveFile& file, std::int64_t rows);

void make_curves_folder(const std::string& folder);
// Writes curves.json, loss-bytes.svg and loss-seconds.svg. Returns a line that names them.
std::string write_curves(const CurveFile& file, std::span<const MeanCurve> curves, const std::string& title,
                         const std::string& folder);

}  // namespace keel::cli
