#include "keel/dist/parallel/setting_tuner.h"

#include <cmath>
#include <limits>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {

SettingTuner::SettingTuner(std::vector<TunedAxis> axes, int steps) : axes_(std::move(axes)), steps_(steps) {
  KEEL_CHECK(steps > 0, "a setting is measured by one step at least, got ", steps);
  begin_axis();
}

void SettingTuner::begin_axis() {
  if (is_over()) return;
  measured_.assign(axes_[axis_].values.size(), std::numeric_limits<double>::infinity());
  axes_[axis_].value = 0;
}

bool SettingTuner::step_took(double ms) {
  TunedAxis& axis = axes_[axis_];
  if (ignored_ > 0) {
    --ignored_;
    return false;
  }
  measured_[axis.value] = std::min(measured_[axis.value], ms);
  if (++counted_ < steps_) return false;
  counted_ = 0;
  ignored_ = 1;
  if (axis.value + 1 == axis.values.size()) return true;
  ++axis.value;
  return false;
}

// Of equal times the first, so that ranks that know the same choose the same.
void SettingTuner::choose(std::span<const double> longest) {
  TunedAxis& axis = axes_[axis_];
  axis.ms.assign(longest.begin(), longest.end());
  axis.value = static_cast<std::size_t>(std::ranges::min_element(axis.ms) - axis.ms.begin());
  ++axis_;
  begin_axis();
}

std::string tried_text(const TunedAxis& axis) {
  std::string text;
  for (std::size_t i = 0; i < axis.ms.size(); ++i)
    text += concat(i == 0 ? "" : ", ", axis.values[i], ' ', std::round(axis.ms[i] * 100) / 100, " ms");
  return text;
}

std::string to_text(std::span<const TunedAxis> axes) {
  std::string text;
  for (const TunedAxis& axis : axes)
    text += concat(text.empty() ? "" : "; ", axis.name, ' ', axis.values[axis.value], " (", tried_text(axis), ')');
  return text;
}

}  // namespace keel
