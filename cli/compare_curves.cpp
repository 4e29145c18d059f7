#include "compare_curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "network.h"
#include "table.h"

namespace keel::cli {
namespace {

std::string deviation_text(const MeanOfSeeds& mean, std::int64_t seeds) {
  return seeds > 1 ? fmt::format("{:.4f}", mean.deviation) : "-";
}

// The last evaluation; null: there is none.
const MeanOfSeeds* last_validation(const MeanCurve& curve) {
  for (auto point = curve.points.rbegin(); point != curve.points.rend(); ++point)
    if (point->validation_loss) return &*point->validation_loss;
  return nullptr;
}

// Bytes as a number of a unit that suits the most there are.
struct ByteUnit {
  double bytes;
  const char* name;
};
ByteUnit unit_for(double most) {
  constexpr ByteUnit kUnits[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
  for (const ByteUnit& unit : kUnits)
    if (most >= unit.bytes) return unit;
  return {1, "bytes"};
}

double place_of_point(const MeanPoint& point, CurveAxis axis, const ByteUnit& unit) {
  return axis == CurveAxis::bytes ? point.bytes / unit.bytes : point.seconds;
}

// What `mean_at` gives at each point, where it gives something.
template <class MeanAt>
Curve curve_over(const MeanCurve& mean, CurveAxis axis, const ByteUnit& unit, const MeanAt& mean_at) {
  Curve curve{.name = mean.variant, .values = {}, .low = std::numeric_limits<double>::infinity()};
  for (const MeanPoint& point : mean.points) {
    const MeanOfSeeds* const value = mean_at(point);
    if (value == nullptr) continue;
    curve.values.push_back(value->mean);
    curve.places.push_back(place_of_point(point, axis, unit));
    if (mean.seeds == 1) continue;
    curve.lower.push_back(value->mean - value->deviation);
    curve.upper.push_back(value->mean + value->deviation);
  }
  return curve;
}

std::vector<std::string> until_cells(const MeanCurve& curve, double until_loss) {
  const MeanPoint* const point = first_below(curve, until_loss);
  if (point == nullptr) return {"not reached", "-", "-"};
  return {fmt::format("{}", point->step), fmt::format("{:.0f}", point->bytes), fmt::format("{:.3f}", point->seconds)};
}

}  // namespace

std::string curves_text(std::span<const MeanCurve> curves, double until_loss, int width) {
  const bool has_until = until_loss == until_loss;
  std::vector<TableColumn> columns = {
      {"", "variant", 0, true},  {"", "loss"}, {"", "+-"}, {"bytes", "a step"}, {"ms", "a step"},
      {"validation", "loss", 1}, {"", "+-", 1}};
  if (has_until)
    for (const char* head : {"steps", "bytes", "seconds"})
      columns.push_back({fmt::format("below {:g}", until_loss), head});
  for (const MeanCurve& curve : curves) {
    const auto steps = static_cast<double>(curve.points.size());
    const MeanPoint& last = curve.points.back();
    const MeanOfSeeds* const validation = last_validation(curve);
    std::vector<std::string> cells = {curve.variant,
                                      fmt::format("{:.4f}", curve.final_loss.mean),
                                      deviation_text(curve.final_loss, curve.seeds),
                                      fmt::format("{:.0f}", last.bytes / steps),
                                      fmt::format("{:.2f}", 1e3 * last.seconds / steps),
                                      validation != nullptr ? fmt::format("{:.4f}", validation->mean) : "-",
                                      validation != nullptr ? deviation_text(*validation, curve.seeds) : "-"};
    if (has_until)
      for (std::string& cell : until_cells(curve, until_loss)) cells.push_back(std::move(cell));
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(std::move(cells[i]));
  }
  return table_text(columns, width);
}

std::vector<Panel> loss_panels(std::span<const MeanCurve> curves, CurveAxis axis) {
  double most = 0;
  for (const MeanCurve& curve : curves) most = std::max(most, curve.points.back().bytes);
  const ByteUnit unit = unit_for(most);
  const std::string places =
      axis == CurveAxis::bytes ? fmt::format("{} that rank 0 has sent", unit.name) : "seconds of training";
  Panel training{.name = "loss", .curves = {}, .places = places, .has_whole_places = false};
  Panel validation{.name = "validation loss", .curves = {}, .places = places, .has_whole_places = false};
  for (std::size_t i = 0; i < curves.size(); ++i) {
    training.curves.push_back(curve_over(curves[i], axis, unit, [](const MeanPoint& point) { return &point.loss; }));
    training.curves.back().look = i;
    Curve evaluated = curve_over(curves[i], axis, unit, [](const MeanPoint& point) {
      return point.validation_loss ? &*point.validation_loss : nullptr;
    });
    evaluated.look = i;
    if (!evaluated.values.empty()) validation.curves.push_back(std::move(evaluated));
  }
  std::vector<Panel> panels = {std::move(training)};
  if (!validation.curves.empty()) panels.push_back(std::move(validation));
  return panels;
}

std::string curves_title(const CurveFile& file, std::int64_t rows) {
  std::set<std::uint64_t> seeds;
  for (const LossCurve& curve : file.curves) seeds.insert(curve.seed);
  const std::string network = describe(file.network);
  return fmt::format("{} steps of {} rows by {} rank{}, {} seed{}{}{}", file.curves.front().points.size(), rows,
                     file.ranks, file.ranks == 1 ? "" : "s", seeds.size(), seeds.size() == 1 ? "" : "s",
                     network.empty() ? "" : "; ", network);
}

void make_curves_folder(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw Error(concat("cannot make folder '", folder, "': ", code.message()), ErrorKind::io);
}

std::string write_curves(const CurveFile& file, std::span<const MeanCurve> curves, const std::string& title,
                         const std::string& folder) {
  std::vector<std::string> names;
  for (const MeanCurve& curve : curves) names.push_back(curve.variant);
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  write_text_file(path("curves.json"), to_json(file));
  write_text_file(path("loss-bytes.svg"), panels_svg(title, loss_panels(curves, CurveAxis::bytes), names));
  write_text_file(path("loss-seconds.svg"), panels_svg(title, loss_panels(curves, CurveAxis::seconds), names));
  return concat(folder, ": curves.json, loss-bytes.svg, loss-seconds.svg\n");
}

}  // namespace keel::cli
