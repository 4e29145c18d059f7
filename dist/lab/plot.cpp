#include "keel/dist/lab/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "keel/dist/lab/sizes.h"

namespace keel::lab {
namespace {

// Colours that are told apart without colour vision, too (Okabe and Ito 2008).
constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};
constexpr std::string_view kDashes[] = {"", "6 3", "2 2", "8 3 2 3"};
constexpr double kWidth = 460, kHeight = 320, kLeft = 64, kTop = 34, kGap = 90, kLegendRow = 18;

struct Point {
  double size, time, low, high, bandwidth;
};
struct Series {
  std::string name;
  std::vector<Point> points = {};
};

std::vector<Series> series_of(const Report& report) {
  std::vector<Series> all;
  for (const Record& record : report.records) {
    const std::optional<Timing>& timing = record.out_of_place ? record.out_of_place : record.in_place;
    if (!timing || record.bytes <= 0 || !(timing->p50_us > 0)) continue;
    const std::string name =
        fmt::format("{} {} {}, {} ranks", record.collective, record.algorithm, record.dtype, record.ranks);
    auto found = std::find_if(all.begin(), all.end(), [&](const Series& one) { return one.name == name; });
    if (found == all.end()) found = all.insert(all.end(), Series{name});
    found->points.push_back(
        {static_cast<double>(record.bytes), timing->p50_us, timing->p25_us, timing->p75_us, timing->busbw});
  }
  return all;
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

class Panel {
 public:
  Panel(double left, std::string_view title, Axis x, Axis y) : left_(left), x_(x), y_(y) {
    out_ = text(left, kTop - 12, "start", title);
    out_ += line(left, kTop + kHeight, left + kWidth, kTop + kHeight, "#444");
    out_ += line(left, kTop, left, kTop + kHeight, "#444");
  }

  void mark_sizes(const std::vector<double>& sizes) {
    double last = -1e9;
    for (const double size : sizes) {
      const double x = x_.place(size);
      if (x - last < 34) continue;
      last = x;
      out_ += line(x, kTop + kHeight, x, kTop + kHeight + 4, "#444");
      out_ += text(x, kTop + kHeight + 17, "middle", size_text(static_cast<std::int64_t>(size)));
    }
    out_ += text(left_ + kWidth / 2, kTop + kHeight + 34, "middle", "bytes");
  }
  void mark_values() {
    std::vector<double> values;
    if (y_.logarithmic)
      for (double power = y_.low; power <= y_.high; ++power) values.push_back(std::pow(10, power));
    else
      for (int i = 0; i <= 5; ++i) values.push_back(y_.low + (y_.high - y_.low) * i / 5);
    for (const double value : values) {
      const double y = y_.place(value);
      out_ += line(left_, y, left_ + kWidth, y, "#ddd");
      out_ += text(left_ - 6, y + 4, "end", fmt::format("{:.6g}", value));
    }
  }
  void curve(const std::vector<std::pair<double, double>>& points, std::string_view colour, std::string_view dash) {
    std::string places;
    for (const auto& [x, y] : points) {
      places += fmt::format("{:.1f},{:.1f} ", x_.place(x), y_.place(y));
      out_ +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\"/>\n", x_.place(x), y_.place(y), colour);
    }
    out_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"{}\"/>\n", places,
                        colour, dash);
  }
  void spread(double x, double low, double high, std::string_view colour) {
    if (low > 0) out_ += line(x_.place(x), y_.place(low), x_.place(x), y_.place(high), colour);
  }
  const std::string& svg() const { return out_; }

 private:
  double left_;
  Axis x_, y_;
  std::string out_;
};

std::string legend(const std::vector<Series>& all, double top) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double y = top + kLegendRow * static_cast<double>(i);
    out += fmt::format(
        "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"{3}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{4}\"/>\n",
        kLeft, y, kLeft + 30, kColours[i % std::size(kColours)], kDashes[i / std::size(kColours) % std::size(kDashes)]);
    out += text(kLeft + 38, y + 4, "start", all[i].name);
  }
  return out;
}

}  // namespace

std::string plot(const Report& report) {
  const std::vector<Series> all = series_of(report);
  KEEL_CHECK(!all.empty(), "there is nothing to draw: no record has a size and a time");
  std::vector<double> sizes;
  double fastest = INFINITY, slowest = 0, widest = 0;
  for (const Series& series : all)
    for (const Point& point : series.points) {
      sizes.push_back(point.size);
      fastest = std::min(fastest, point.time);
      slowest = std::max({slowest, point.time, point.high});
      widest = std::max(widest, point.bandwidth);
    }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const double right = kLeft + kWidth + kGap, bottom = kTop + kHeight;
  const auto size_axis = [&](double left) {
    return Axis{std::log10(sizes.front()), std::log10(sizes.back()), true, left, left + kWidth};
  };
  const Axis times = powers_of_ten(fastest, slowest, bottom, kTop);
  Panel time(kLeft, "time of a call, us (median; bars: middle half)", size_axis(kLeft), times);
  Panel bandwidth(right, "bus bandwidth, GB/s", size_axis(right),
                  {0, widest > 0 ? widest * 1.05 : 1, false, bottom, kTop});
  for (Panel* panel : {&time, &bandwidth}) {
    panel->mark_values();
    panel->mark_sizes(sizes);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)],
                           dash = kDashes[i / std::size(kColours) % std::size(kDashes)];
    std::vector<std::pair<double, double>> left, over;
    for (const Point& point : all[i].points) {
      left.emplace_back(point.size, point.time);
      over.emplace_back(point.size, point.bandwidth);
      if (point.low >= std::pow(10, times.low)) time.spread(point.size, point.low, point.high, colour);
    }
    time.curve(left, colour, dash);
    bandwidth.curve(over, colour, dash);
  }
  const double width = right + kWidth + 30, top_of_legend = bottom + 60,
               height = top_of_legend + kLegendRow * static_cast<double>(all.size()) + 10;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
             width, height) +
         time.svg() + bandwidth.svg() + legend(all, top_of_legend) + "</svg>\n";
}

}  // namespace keel::lab
