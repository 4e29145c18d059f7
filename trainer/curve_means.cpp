#include "keel/trainer/curve_means.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// The mean of the last kRunningSteps of the points [0, count), as of all where there are fewer.
template <class Points, class LossOf>
double running_mean(const Points& points, std::size_t count, const LossOf& loss_of) {
  const std::size_t steps = std::min(count, static_cast<std::size_t>(kRunningSteps));
  double sum = 0;
  for (std::size_t i = count - steps; i < count; ++i) sum += loss_of(points[i]);
  return sum / static_cast<double>(steps);
}

MeanPoint mean_at(std::span<const LossCurve* const> curves, std::size_t at) {
  std::vector<double> losses, validation;
  MeanPoint mean{.step = curves.front()->points[at].step};
  for (const LossCurve* const curve : curves) {
    const LossPoint& point = curve->points[at];
    losses.push_back(point.loss);
    if (point.validation_loss) validation.push_back(*point.validation_loss);
    mean.bytes += static_cast<double>(point.bytes) / static_cast<double>(curves.size());
    mean.seconds += point.seconds / static_cast<double>(curves.size());
  }
  mean.loss = mean_of_seeds(losses);
  if (validation.size() == curves.size()) mean.validation_loss = mean_of_seeds(validation);
  return mean;
}

MeanCurve mean_of_curves(std::span<const LossCurve* const> curves) {
  const LossCurve& first = *curves.front();
  MeanCurve mean{.variant = first.variant, .seeds = static_cast<std::int64_t>(curves.size())};
  std::vector<double> final_losses;
  for (const LossCurve* const curve : curves) {
    KEEL_CHECK(curve->points.size() == first.points.size(), "curves of ", first.variant, " have ", first.points.size(),
               " and ", curve->points.size(), " steps");
    KEEL_CHECK(!curve->points.empty(), "a curve of ", first.variant, " has no steps");
    final_losses.push_back(
        running_mean(curve->points, curve->points.size(), [](const LossPoint& point) { return point.loss; }));
  }
  for (std::size_t i = 0; i < first.points.size(); ++i) mean.points.push_back(mean_at(curves, i));
  mean.final_loss = mean_of_seeds(final_losses);
  return mean;
}

}  // namespace

MeanOfSeeds mean_of_seeds(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return {mean, 0};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1))};
}

std::vector<MeanCurve> mean_curves(std::span<const LossCurve> curves) {
  std::vector<std::vector<const LossCurve*>> variants;
  for (const LossCurve& curve : curves) {
    auto variant = std::find_if(variants.begin(), variants.end(),
                                [&](const auto& each) { return each.front()->variant == curve.variant; });
    if (variant == variants.end()) variant = variants.insert(variants.end(), {{}});
    variant->push_back(&curve);
  }
  std::vector<MeanCurve> means;
  for (const auto& each : variants) means.push_back(mean_of_curves(each));
  return means;
}

const MeanPoint* first_below(const MeanCurve& curve, double loss) {
  const std::vector<MeanPoint>& points = curve.points;
  for (std::size_t count = std::min(points.size(), static_cast<std::size_t>(kRunningSteps));
       count > 0 && count <= points.size(); ++count)
    if (running_mean(points, count, [](const MeanPoint& point) { return point.loss.mean; }) < loss)
      return &points[count - 1];
  return nullptr;
}

}  // namespace keel
