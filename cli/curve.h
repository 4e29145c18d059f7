#pragma once
// Curves over the steps of a run, or over what they cost, as text for a terminal and as SVG.

#include <span>
#include <string>
#include <vector>

namespace keel::cli {

struct Curve {
  std::string name;                 // "learning rate"
  std::vector<double> values;       // not empty
  double low = 0;                   // where the axis begins, unless values are lower; it ends at the highest value
  std::vector<double> places = {};  // steps of the values, ascending; empty: 0, 1, 2, ...
  std::size_t look = 0;             // mark in a terminal, colour and dash in SVG
  // SVG alone: the edges of a band around the values, as many as there are; empty: none.
  std::vector<double> lower = {}, upper = {};
};
inline constexpr std::size_t kLooks = 8;

// Curves on the same axes.
struct Panel {
  std::string name;  // "loss"
  std::vector<Curve> curves;
  bool is_marked = false;  // in a terminal each curve is drawn with its mark; otherwise as a line
  std::string places = "steps taken";
  bool has_whole_places = true;
};

enum class CurveStyle { braille, ascii };

struct CurveSize {
  int columns = 72, rows = 13;  // characters, without the labels
};
// Characters before the columns.
inline constexpr int kCurveLabel = 14;

// Lines with labelled axes: each curve's highest and lowest values in each column, and where the steps begin and end.
std::string draw_panel(const Panel& panel, CurveStyle style, CurveSize size = {});
std::string draw_curve(const Curve& curve, CurveStyle style, CurveSize size = {});
// "  * runs/a", a line for each look in their order.
std::string draw_legend(std::span<const std::string> names, CurveStyle style);

// A drawing of its own, the panels one below the other; `names` of looks, in their order, make a legend.
std::string panels_svg(const std::string& title, std::span<const Panel> panels,
                       std::span<const std::string> names = {});
// One panel for each curve.
std::string curves_svg(const std::string& title, std::span<const Curve> curves);

}  // namespace keel::cli
