#include "keel/dist/lab/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "keel/dist/lab/sizes.h"

namespace keel::lab {
namespace {

constexpr std::string_view kDashes[] = {"", "6 3", "2 2", "8 3 2 3"};
// Paths around the point, of which the first is a circle.
constexpr std::string_view kMarks[] = {"m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z", "m-2.5 -2.5h5v5h-5z",
                                       "m-3 2.2h6l-3 -5.2z", "m0 -3.4l3.4 3.4l-3.4 3.4l-3.4 -3.4z"};
constexpr double kWidth = 460, kHeight = 320, kLeft = 64, kTop = 34, kGap = 90, kBelow = 60, kLegendRow = 18;
constexpr double kMostTicks = 12;

// How a curve looks: another one for each of the first 128.
struct Style {
  std::string_view colour, dash, mark;
};
Style style_of(std::size_t i) {
  constexpr std::size_t kColourCount = std::size(kCurveColours), kDashCount = std::size(kDashes);
  return {kCurveColours[i % kColourCount], kDashes[i / kColourCount % kDashCount],
          kMarks[(i + i / (kColourCount * kDashCount)) % std::size(kMarks)]};
}

struct Point {
  double size, time, low, high, bandwidth;
};
// A collective and its curves, which are empty where it was not measured so.
struct PlotRow {
  std::string collective;
  std::vector<std::vector<Point>> curves = {};
};

// Adds the name where it is new.
std::size_t place_of(std::vector<std::string>& all, const std::string& name) {
  const auto place = static_cast<std::size_t>(std::find(all.begin(), all.end(), name) - all.begin());
  if (place == all.size()) all.push_back(name);
  return place;
}

struct Picture {
  std::vector<std::string> names = {};  // of curves
  std::vector<PlotRow> rows = {};
};

Picture read(const Report& report) {
  Picture picture;
  std::vector<std::string> collectives;
  for (const Record& record : report.records) {
    const std::optional<Timing>& timing = record.out_of_place ? record.out_of_place : record.in_place;
    if (!timing || record.bytes <= 0 || !(timing->p50_us > 0)) continue;
    const std::size_t row = place_of(collectives, asked_of(record)),
                      curve = place_of(picture.names,
                                       fmt::format("{} {}, {} ranks", record.algorithm, record.dtype, record.ranks));
    picture.rows.resize(collectives.size());
    picture.rows[row].collective = asked_of(record);
    std::vector<std::vector<Point>>& curves = picture.rows[row].curves;
    curves.resize(std::max(curves.size(), curve + 1));
    curves[curve].push_back(
        {static_cast<double>(record.bytes), timing->p50_us, timing->p25_us, timing->p75_us, timing->busbw});
  }
  return picture;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') safe += "&lt;";
    else if (c == '>') safe += "&gt;";
    else if (c == '&') safe += "&amp;";
    else if (c == '"') safe += "&quot;";
    else safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return safe;
}

std::string text(double x, double y, std::string_view anchor, std::string_view words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(words));
}
std::string line(double x1, double y1, double x2, double y2, std::string_view colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     colour);
}

// From numbers to places along an edge of the picture.
struct Axis {
  double low, high;  // of the numbers, or of their logarithms
  bool logarithmic;
  double from, to;

  double place(double value) const {
    const double at = logarithmic ? std::log10(value) : value;
    return from + (high > low ? (at - low) / (high - low) : 0.5) * (to - from);
  }
};

// Wide enough for all, from one power of ten to another.
Axis powers_of_ten(double least, double most, double from, double to) {
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most));
  return {low, std::max(high, low + 1), true, from, to};
}

// Wide enough for all, from 0 to a multiple of a step of 1, 2 or 5 times a power of ten; so is each of its marks.
struct RoundSteps {
  double step = 1, last = 1;
  explicit RoundSteps(double most) {
    if (!(most > 0)) return;
    const double power = std::pow(10, std::floor(std::log10(most / 4)));
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      step = factor * power;
      if (most <= 6 * step) break;
    }
    last = step * std::ceil(most / step * (1 - 1e-12));
  }
};

// The powers of two from `least` to `most` with equal distances between them, no more than fit; `least` where there is
// none.
std::vector<double> powers_of_two(double least, double most) {
  const double first = std::log2(least), last = std::log2(most);
  double distance = 1;
  while ((last - first) / distance > kMostTicks) ++distance;
  std::vector<double> sizes;
  for (double exponent = std::ceil(first / distance) * distance; exponent <= last; exponent += distance)
    sizes.push_back(std::exp2(exponent));
  if (sizes.empty()) sizes.push_back(least);
  return sizes;
}

class Panel {
 public:
  Panel(double left, double top, std::string_view title, Axis x, Axis y)
      : left_(left), bottom_(top + kHeight), x_(x), y_(y) {
    out_ = text(left, top - 12, "start", title);
    out_ += line(left, bottom_, left + kWidth, bottom_, "#444");
    out_ += line(left, top, left, bottom_, "#444");
  }

  void mark_sizes(const std::vector<double>& sizes) {
    for (const double size : sizes) {
      const double x = x_.place(size);
      out_ += line(x, bottom_, x, bottom_ + 4, "#444");
      out_ += text(x, bottom_ + 17, "middle", size_text(static_cast<std::int64_t>(size)));
    }
    out_ += text(left_ + kWidth / 2, bottom_ + 34, "middle", "bytes");
  }
  void mark_values(const std::vector<double>& values) {
    for (const double value : values) {
      const double y = y_.place(value);
      out_ += line(left_, y, left_ + kWidth, y, "#ddd");
      out_ += text(left_ - 6, y + 4, "end", fmt::format("{:.7g}", value));
    }
  }
  void curve(const std::vector<std::pair<double, double>>& points, const Style& style) {
    std::string places;
    for (const auto& [x, y] : points) {
      places += fmt::format("{:.1f},{:.1f} ", x_.place(x), y_.place(y));
      out_ += mark(x_.place(x), y_.place(y), style);
    }
    out_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"{}\"/>\n", places,
                        style.colour, style.dash);
  }
  void spread(double x, double low, double high, std::string_view colour) {
    if (low > 0) out_ += line(x_.place(x), y_.place(low), x_.place(x), y_.place(high), colour);
  }
  static std::string mark(double x, double y, const Style& style) {
    return fmt::format("<path d=\"M{:.1f} {:.1f}{}\" fill=\"{}\"/>\n", x, y, style.mark, style.colour);
  }
  const std::string& svg() const { return out_; }

 private:
  double left_, bottom_;
  Axis x_, y_;
  std::string out_;
};

std::string draw(const PlotRow& row, double top) {
  double smallest = INFINITY, largest = 0, fastest = INFINITY, slowest = 0, widest = 0;
  for (const std::vector<Point>& curve : row.curves)
    for (const Point& point : curve) {
      smallest = std::min(smallest, point.size);
      largest = std::max(largest, point.size);
      fastest = std::min(fastest, point.time);
      slowest = std::max({slowest, point.time, point.high});
      widest = std::max(widest, point.bandwidth);
    }
  const double right = kLeft + kWidth + kGap, bottom = top + kHeight;
  const auto size_axis = [&](double left) {
    return Axis{std::log10(smallest), std::log10(largest), true, left, left + kWidth};
  };
  const Axis times = powers_of_ten(fastest, slowest, bottom, top);
  const RoundSteps steps(widest);
  std::vector<double> powers, bandwidths;
  for (double power = times.low; power <= times.high; ++power) powers.push_back(std::pow(10, power));
  for (int i = 0; i * steps.step <= steps.last * 1.001; ++i) bandwidths.push_back(i * steps.step);
  Panel time(kLeft, top, row.collective + ": time of a call, us (median; bars: middle half)", size_axis(kLeft), times);
  Panel bandwidth(right, top, row.collective + ": bus bandwidth, GB/s", size_axis(right),
                  {0, steps.last, false, bottom, top});
  time.mark_values(powers);
  bandwidth.mark_values(bandwidths);
  for (Panel* panel : {&time, &bandwidth}) panel->mark_sizes(powers_of_two(smallest, largest));
  for (std::size_t i = 0; i < row.curves.size(); ++i) {
    if (row.curves[i].empty()) continue;
    const Style style = style_of(i);
    std::vector<std::pair<double, double>> left, over;
    for (const Point& point : row.curves[i]) {
      left.emplace_back(point.size, point.time);
      over.emplace_back(point.size, point.bandwidth);
      if (point.low >= std::pow(10, times.low)) time.spread(point.size, point.low, point.high, style.colour);
    }
    time.curve(left, style);
    bandwidth.curve(over, style);
  }
  return time.svg() + bandwidth.svg();
}

std::string legend(const std::vector<std::string>& names, double top) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double y = top + kLegendRow * static_cast<double>(i);
    const Style style = style_of(i);
    out += fmt::format(
        "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"{3}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{4}\"/>\n",
        kLeft, y, kLeft + 40, style.colour, style.dash);
    out += Panel::mark(kLeft + 20, y, style);
    out += text(kLeft + 48, y + 4, "start", names[i]);
  }
  return out;
}

}  // namespace

std::string plot(const Report& report) {
  const Picture picture = read(report);
  KEEL_CHECK(!picture.rows.empty(), "there is nothing to draw: no record has a size and a time");
  std::string rows;
  double top = kTop;
  for (const PlotRow& row : picture.rows) {
    rows += draw(row, top);
    top += kHeight + kBelow + kTop;
  }
  const double width = kLeft + 2 * kWidth + kGap + 30, top_of_legend = top - kTop,
               height = top_of_legend + kLegendRow * static_cast<double>(picture.names.size()) + 10;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
             width, height) +
         rows + legend(picture.names, top_of_legend) + "</svg>\n";
}

}  // namespace keel::lab
