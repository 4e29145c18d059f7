#include "curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace keel::cli {
namespace {

// A canvas of dots, `wide` by `tall` in each character.
struct Raster {
  int wide, tall;
  CurveSize size;
  std::vector<unsigned char> dots =
      std::vector<unsigned char>(static_cast<std::size_t>(width()) * static_cast<std::size_t>(height()), 0);

  int width() const { return wide * size.columns; }
  int height() const { return tall * size.rows; }
  unsigned char& at(int x, int y) {
    return dots[static_cast<std::size_t>(y) * static_cast<std::size_t>(width()) + static_cast<std::size_t>(x)];
  }
};

double highest(const Curve& curve) { return *std::max_element(curve.values.begin(), curve.values.end()); }
double axis_low(const Curve& curve) {
  return std::min(curve.low, *std::min_element(curve.values.begin(), curve.values.end()));
}

// A value's place between the ends of the axis, from 0 to 1; a flat curve at its low end lies at 0.
double height_of(double value, double low, double high) { return high > low ? (value - low) / (high - low) : 0; }

// The steps that share a column: at least one, where there are fewer steps than columns.
std::pair<std::size_t, std::size_t> steps_of(int x, int width, std::size_t count) {
  const std::size_t columns = static_cast<std::size_t>(width), column = static_cast<std::size_t>(x);
  const std::size_t begin = column * count / columns;
  return {begin, std::max(begin + 1, (column + 1) * count / columns)};
}

void paint(const Curve& curve, Raster& raster) {
  const double low = axis_low(curve), high = highest(curve);
  const auto dot_of = [&](double value) {
    return static_cast<int>(std::lround(height_of(value, low, high) * (raster.height() - 1)));
  };
  double before = curve.values[0];
  for (int x = 0; x < raster.width(); ++x) {
    const auto [begin, end] = steps_of(x, raster.width(), curve.values.size());
    int bottom = dot_of(curve.values[begin]), top = bottom;
    for (std::size_t step = begin; step < end; ++step) {
      bottom = std::min(bottom, dot_of(curve.values[step]));
      top = std::max(top, dot_of(curve.values[step]));
    }
    // Joined to the column before, from which the next dot is one further on.
    const int last = dot_of(before);
    if (last > top) top = last - 1;
    if (last < bottom) bottom = last + 1;
    for (int y = bottom; y <= std::max(top, bottom); ++y) raster.at(x, raster.height() - 1 - y) = 1;
    before = curve.values[end - 1];
  }
}

// A braille character holds 2 by 4 dots; bit numbers as in Unicode's block 2800.
std::string braille(Raster& raster, int column, int row) {
  constexpr int kBits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  unsigned code = 0;
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 2; ++x)
      if (raster.at(2 * column + x, 4 * row + y) != 0) code |= 1u << kBits[y][x];
  if (code == 0) return " ";
  return {static_cast<char>(0xe2), static_cast<char>(0xa0 + (code >> 6)), static_cast<char>(0x80 + (code & 63))};
}

std::string label(double value) { return fmt::format("{:.4g}", value); }

// Numbers and lines of a panel of the SVG.
struct Panel {
  double left = 90, top = 0, width = 760, height = 240;
};

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped);
}

std::string svg_panel(const Curve& curve, const Panel& panel) {
  const double low = axis_low(curve), high = highest(curve);
  const double bottom = panel.top + panel.height, right = panel.left + panel.width;
  std::string text = svg_text(panel.left, panel.top - 8, "start", curve.name);
  for (int i = 0; i <= 4; ++i) {
    const double y = bottom - panel.height * i / 4, x = panel.left + panel.width * i / 4;
    text += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", panel.left,
                        y, right, y);
    text += svg_text(panel.left - 8, y + 4, "end", label(low + (high - low) * i / 4));
    text += svg_text(x, bottom + 18, "middle", label(std::floor(static_cast<double>(curve.values.size() - 1) * i / 4)));
  }
  text += svg_text((panel.left + right) / 2, bottom + 34, "middle", "steps taken");
  // Two points a pixel show every rise and fall: the lowest and the highest value of the steps that share it.
  const int pixels = static_cast<int>(panel.width);
  const std::size_t count = curve.values.size();
  const auto x_of = [&](std::size_t step) {
    return panel.left + (count == 1 ? 0 : panel.width * static_cast<double>(step) / static_cast<double>(count - 1));
  };
  std::string points;
  const auto add = [&](std::size_t step) {
    points +=
        fmt::format("{:.2f},{:.2f} ", x_of(step), bottom - panel.height * height_of(curve.values[step], low, high));
  };
  if (count <= 2 * static_cast<std::size_t>(pixels)) {
    for (std::size_t step = 0; step < count; ++step) add(step);
  } else {
    for (int x = 0; x < pixels; ++x) {
      const auto [begin, end] = steps_of(x, pixels, count);
      const auto first = curve.values.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto [least, most] = std::minmax_element(first, curve.values.begin() + static_cast<std::ptrdiff_t>(end));
      const auto a = static_cast<std::size_t>(least - curve.values.begin());
      const auto b = static_cast<std::size_t>(most - curve.values.begin());
      add(std::min(a, b));
      if (a != b) add(std::max(a, b));
    }
  }
  return text +
         fmt::format("<polyline fill=\"none\" stroke=\"#1f5fbf\" stroke-width=\"1.5\" points=\"{}\"/>\n", points);
}

}  // namespace

std::string draw_curve(const Curve& curve, CurveStyle style, CurveSize size) {
  Raster raster = style == CurveStyle::braille ? Raster{2, 4, size} : Raster{1, 1, size};
  paint(curve, raster);
  const double low = axis_low(curve), high = highest(curve);
  const bool plain = style == CurveStyle::ascii;
  const std::string last = std::to_string(curve.values.size() - 1);
  std::string text = fmt::format("{:>12} {}\n", "", curve.name);
  for (int row = 0; row < size.rows; ++row) {
    std::string line;
    const int middle = (size.rows - 1) / 2;
    const double height = 1 - static_cast<double>(row) / (size.rows - 1);
    const bool labelled = row == 0 || row == middle || row + 1 == size.rows;
    line = fmt::format("{:>12} {}", labelled && (high > low || row == 0) ? label(low + (high - low) * height) : "",
                       plain ? "|" : "\u2502");
    for (int column = 0; column < size.columns; ++column)
      line += plain ? (raster.at(column, row) != 0 ? "*" : " ") : braille(raster, column, row);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  std::string axis;
  for (int column = 0; column < size.columns; ++column) axis += plain ? "-" : "\u2500";
  text += fmt::format("{:>12} {}{}\n", "", plain ? "+" : "\u2514", axis);
  const int room = std::max(size.columns - 1 - static_cast<int>(last.size()), 1);
  return text + fmt::format("{:>12}  0{:^{}}{}\n", "", "steps taken", room, last);
}

std::string curves_svg(const std::string& title, std::span<const Curve> curves) {
  constexpr double kPanel = 320;
  Panel panel{.top = 70};
  const double height = 40 + kPanel * static_cast<double>(curves.size());
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {0}\" width=\"900\" height=\"{0}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"900\" height=\"{0}\" fill=\"white\"/>\n",
      height);
  text += svg_text(450, 28, "middle", title);
  for (const Curve& curve : curves) {
    text += svg_panel(curve, panel);
    panel.top += kPanel;
  }
  return text + "</svg>\n";
}

}  // namespace keel::cli
