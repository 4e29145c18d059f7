#include "curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "keel/dist/lab/plot.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

constexpr std::string_view kAsciiMarks[] = {"*", "o", "+", "x", "#", "@", "%", "&"};
constexpr std::string_view kMarks[] = {"\u25cf", "\u25cb", "\u25b2", "\u25b3", "\u25a0", "\u25a1", "\u25c6", "\u25c7"};
// They tell curves apart in black and white, too.
constexpr std::string_view kDashes[] = {"", "7 3", "2 2", "9 3 2 3", "4 2", "1 3", "12 4", "6 2 1 2 1 2"};
static_assert(std::size(kAsciiMarks) == kLooks && std::size(kMarks) == kLooks &&
              std::size(lab::kCurveColours) == kLooks && std::size(kDashes) == kLooks);

double place_of(const Curve& curve, std::size_t i) {
  return curve.places.empty() ? static_cast<double>(i) : curve.places[i];
}
double last_place(const Curve& curve) { return place_of(curve, curve.values.size() - 1); }
// Where the last value's part of the axis ends: it is as wide as those before, on average.
double end_of(const Curve& curve) {
  const auto parts = static_cast<double>(curve.values.size() - 1);
  return last_place(curve) + (parts > 0 ? (last_place(curve) - place_of(curve, 0)) / parts : 1);
}

// The ends of a panel's axes.
struct Axes {
  double low, high;         // of the values
  double first, last, end;  // of the places

  explicit Axes(const Panel& panel)
      : low(std::numeric_limits<double>::infinity()), high(-low), first(low), last(-low), end(-low) {
    KEEL_CHECK(!panel.curves.empty(), "there is nothing to draw as ", panel.name);
    for (const Curve& curve : panel.curves) {
      const auto [least, most] = std::minmax_element(curve.values.begin(), curve.values.end());
      low = std::min({low, curve.low, *least});
      high = std::max(high, *most);
      for (const double edge : curve.lower) low = std::min(low, edge);
      for (const double edge : curve.upper) high = std::max(high, edge);
      first = std::min(first, place_of(curve, 0));
      last = std::max(last, last_place(curve));
      end = std::max(end, end_of(curve));
    }
  }
  // A value's place between the ends, from 0 to 1; a flat curve at its low end lies at 0.
  double height_of(double value) const { return high > low ? (value - low) / (high - low) : 0; }
};

// A canvas of dots, `wide` by `tall` in each character, that hold the look of a curve, counted from 1.
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

// The values that share the column from one place to another; none outside of the curve. A value holds until the next.
std::pair<std::size_t, std::size_t> values_between(const Curve& curve, double from, double to) {
  const std::size_t count = curve.values.size();
  if (to <= place_of(curve, 0) || from >= end_of(curve)) return {0, 0};
  const auto first_from = [&](double place) {
    std::size_t low = 0, high = count;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (place_of(curve, middle) < place) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  std::size_t begin = first_from(from);
  if (begin == count || (begin > 0 && place_of(curve, begin) > from)) --begin;
  return {begin, std::max(begin + 1, first_from(to))};
}

// Where curves share a dot, they take turns by column.
void paint(const Curve& curve, std::size_t turn, std::size_t turns, const Axes& axes, Raster& raster) {
  const auto number = static_cast<unsigned char>(curve.look + 1);
  const auto dot_of = [&](double value) {
    return static_cast<int>(std::lround(axes.height_of(value) * (raster.height() - 1)));
  };
  const double step = (axes.end - axes.first) / raster.width();
  int last = -1;  // the dot of the value before
  for (int x = 0; x < raster.width(); ++x) {
    const auto [begin, end] = values_between(curve, axes.first + x * step, axes.first + (x + 1) * step);
    if (begin == end) continue;
    int bottom = dot_of(curve.values[begin]), top = bottom;
    for (std::size_t i = begin; i < end; ++i) {
      bottom = std::min(bottom, dot_of(curve.values[i]));
      top = std::max(top, dot_of(curve.values[i]));
    }
    // Joined to the column before, from which the next dot is one further on.
    if (last > top) top = last - 1;
    if (last >= 0 && last < bottom) bottom = last + 1;
    const bool has_turn = static_cast<std::size_t>(x) % turns == turn;
    for (int y = bottom; y <= std::max(top, bottom); ++y)
      if (unsigned char& dot = raster.at(x, raster.height() - 1 - y); dot == 0 || has_turn) dot = number;
    last = dot_of(curve.values[end - 1]);
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

std::string_view mark_of(std::size_t look, CurveStyle style) {
  return style == CurveStyle::ascii ? kAsciiMarks[look] : kMarks[look];
}

std::string label(double value) { return fmt::format("{:.4g}", value); }
std::string place_label(const Panel& panel, double place) {
  return panel.has_whole_places ? fmt::format("{:.0f}", std::floor(place)) : label(place);
}

// Numbers and lines of a panel of the SVG.
struct Frame {
  double left = 90, top = 0, width = 760, height = 240;
};

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped);
}

std::string svg_style(std::size_t look) {
  return fmt::format("stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"1.5\"", lab::kCurveColours[look],
                     kDashes[look]);
}

double svg_x(double place, const Axes& axes, const Frame& frame) {
  const double length = axes.last - axes.first;
  return frame.left + (length > 0 ? frame.width * (place - axes.first) / length : 0);
}
double svg_y(double value, const Axes& axes, const Frame& frame) {
  return frame.top + frame.height * (1 - axes.height_of(value));
}

// The curve's band, with a point a pixel at most.
std::string svg_band(const Curve& curve, const Axes& axes, const Frame& frame) {
  const std::size_t count = curve.lower.size();
  if (count < 2) return "";
  const std::size_t points = std::min(count, static_cast<std::size_t>(frame.width));
  std::string corners;
  const auto add = [&](std::size_t point, const std::vector<double>& edge) {
    const std::size_t i = point * (count - 1) / (points - 1);
    corners += fmt::format("{:.2f},{:.2f} ", svg_x(place_of(curve, i), axes, frame), svg_y(edge[i], axes, frame));
  };
  for (std::size_t point = 0; point < points; ++point) add(point, curve.upper);
  for (std::size_t point = points; point-- > 0;) add(point, curve.lower);
  return fmt::format("<polygon fill=\"{}\" fill-opacity=\"0.15\" points=\"{}\"/>\n", lab::kCurveColours[curve.look],
                     corners);
}

// Two points a pixel show every rise and fall: the lowest and the highest value of those that share it.
std::string svg_curve(const Curve& curve, const Axes& axes, const Frame& frame) {
  const std::size_t count = curve.values.size(), pixels = static_cast<std::size_t>(frame.width);
  const auto x_of = [&](std::size_t i) { return svg_x(place_of(curve, i), axes, frame); };
  const auto y_of = [&](std::size_t i) { return svg_y(curve.values[i], axes, frame); };
  if (count == 1)  // a line of one point is none
    return fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\" fill=\"{}\"/>\n", x_of(0), y_of(0),
                       lab::kCurveColours[curve.look]);
  std::string points;
  const auto add = [&](std::size_t i) { points += fmt::format("{:.2f},{:.2f} ", x_of(i), y_of(i)); };
  if (count <= 2 * pixels) {
    for (std::size_t i = 0; i < count; ++i) add(i);
  } else {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      const auto from = curve.values.begin() + static_cast<std::ptrdiff_t>(pixel * count / pixels);
      const auto to = curve.values.begin() + static_cast<std::ptrdiff_t>((pixel + 1) * count / pixels);
      const auto [least, most] = std::minmax_element(from, to);
      const auto a = static_cast<std::size_t>(least - curve.values.begin());
      const auto b = static_cast<std::size_t>(most - curve.values.begin());
      add(std::min(a, b));
      if (a != b) add(std::max(a, b));
    }
  }
  return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", svg_style(curve.look), points);
}

std::string svg_panel(const Panel& panel, const Frame& frame) {
  const Axes axes(panel);
  const double bottom = frame.top + frame.height, right = frame.left + frame.width;
  std::string text = svg_text(frame.left, frame.top - 8, "start", panel.name);
  for (int i = 0; i <= 4; ++i) {
    const double y = bottom - frame.height * i / 4, x = frame.left + frame.width * i / 4;
    text += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", frame.left,
                        y, right, y);
    text += svg_text(frame.left - 8, y + 4, "end", label(axes.low + (axes.high - axes.low) * i / 4));
    text += svg_text(x, bottom + 18, "middle", place_label(panel, axes.first + (axes.last - axes.first) * i / 4));
  }
  text += svg_text((frame.left + right) / 2, bottom + 34, "middle", panel.places);
  for (const Curve& curve : panel.curves) text += svg_band(curve, axes, frame);
  for (const Curve& curve : panel.curves) text += svg_curve(curve, axes, frame);
  return text;
}

std::string svg_legend(std::span<const std::string> names, const Frame& frame, double row) {
  std::string text;
  double y = frame.top;
  for (std::size_t look = 0; look < names.size(); ++look, y += row) {
    text += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" {3}/>\n", frame.left, y - 4,
                        frame.left + 40, svg_style(look));
    text += svg_text(frame.left + 48, y, "start", names[look]);
  }
  return text;
}

Panel panel_of(const Curve& curve) { return {curve.name, {curve}}; }

}  // namespace

std::string draw_panel(const Panel& panel, CurveStyle style, CurveSize size) {
  const Axes axes(panel);
  const bool plain = style == CurveStyle::ascii;
  Raster raster = plain || panel.is_marked ? Raster{1, 1, size} : Raster{2, 4, size};
  for (std::size_t i = 0; i < panel.curves.size(); ++i) paint(panel.curves[i], i, panel.curves.size(), axes, raster);
  const auto character = [&](int column, int row) -> std::string {
    if (raster.wide > 1) return braille(raster, column, row);
    const unsigned char number = raster.at(column, row);
    return number == 0 ? " " : std::string(mark_of(number - 1u, style));
  };
  const std::string first = place_label(panel, axes.first), last = place_label(panel, axes.last);
  std::string text = fmt::format("{:>12} {}\n", "", panel.name);
  for (int row = 0; row < size.rows; ++row) {
    const int middle = (size.rows - 1) / 2;
    const double height = 1 - static_cast<double>(row) / (size.rows - 1);
    const bool labelled = row == 0 || row == middle || row + 1 == size.rows;
    std::string line = fmt::format(
        "{:>12} {}",
        labelled && (axes.high > axes.low || row == 0) ? label(axes.low + (axes.high - axes.low) * height) : "",
        plain ? "|" : "\u2502");
    for (int column = 0; column < size.columns; ++column) line += character(column, row);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  std::string axis;
  for (int column = 0; column < size.columns; ++column) axis += plain ? "-" : "\u2500";
  text += fmt::format("{:>12} {}{}\n", "", plain ? "+" : "\u2514", axis);
  const int room = std::max(size.columns - static_cast<int>(first.size() + last.size()), 1);
  return text + fmt::format("{:>12}  {}{:^{}}{}\n", "", first, panel.places, room, last);
}

std::string draw_curve(const Curve& curve, CurveStyle style, CurveSize size) {
  return draw_panel(panel_of(curve), style, size);
}

std::string draw_legend(std::span<const std::string> names, CurveStyle style) {
  std::string text;
  for (std::size_t look = 0; look < names.size(); ++look)
    text += fmt::format("  {} {}\n", mark_of(look, style), names[look]);
  return text;
}

std::string panels_svg(const std::string& title, std::span<const Panel> panels, std::span<const std::string> names) {
  constexpr double kPanel = 320, kRow = 18;
  const double legend = kRow * static_cast<double>(names.size());
  Frame frame{.top = 54};
  const double height = 40 + legend + kPanel * static_cast<double>(panels.size());
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {0}\" width=\"900\" height=\"{0}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"900\" height=\"{0}\" fill=\"white\"/>\n",
      height);
  text += svg_text(450, 28, "middle", title);
  text += svg_legend(names, frame, kRow);
  frame.top = 70 + legend;
  for (const Panel& panel : panels) {
    text += svg_panel(panel, frame);
    frame.top += kPanel;
  }
  return text + "</svg>\n";
}

std::string curves_svg(const std::string& title, std::span<const Curve> curves) {
  std::vector<Panel> panels;
  for (const Curve& curve : curves) panels.push_back(panel_of(curve));
  return panels_svg(title, panels);
}

}  // namespace keel::cli
