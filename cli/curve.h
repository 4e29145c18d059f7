#pragma once
// Curves over the steps of a run, as text for a terminal and as SVG.

#include <span>
#include <string>
#include <vector>

namespace keel::cli {

struct Curve {
  std::string name;            // "learning rate"
  std::vector<double> values;  // one for each step, not empty
  double low = 0;              // where the axis begins; it ends at the highest value
};

enum class CurveStyle { braille, ascii };

struct CurveSize {
  int columns = 72, rows = 13;  // characters, without the labels
};

// Lines with labelled axes: the curve's highest and lowest values in each column, and where it starts and ends.
std::string draw_curve(const Curve& curve, CurveStyle style, CurveSize size = {});

// A drawing of its own, one panel for each curve.
std::string curves_svg(const std::string& title, std::span<const Curve> curves);

}  // namespace keel::cli
