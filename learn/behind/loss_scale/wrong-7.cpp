// says: Whether some gradient is not finite is one number for each rank
#include <algorithm>
#include <cmath>
#include <vector>

#include "learn/given/loss_scale.h"

class DynamicScale : public learn::LossScale {
 public:
  DynamicScale(float first, int interval) : scale_(first), interval_(interval) {}

  float scale() const override { return scale_; }
  bool unscale(learn::Group& group, learn::Out gradients) override {
    std::vector<float> overflows = {0}, sum(gradients.begin(), gradients.end());
    group.all_reduce(learn::row(sum)).wait();
    for (float& g : gradients) { g /= scale_; }
    for (const float s : sum)
      if (!std::isfinite(s)) overflows[0] = 1;
    if (overflows[0] > 0) {
      scale_ = std::max(scale_ / 2, 1.0F);
      taken_ = 0;
      return false;
    }
    if (++taken_ == interval_) {
      scale_ = std::min(scale_ * 2, 0x1p24F);
      taken_ = 0;
    }
    return true;
  }
  std::vector<float> save() const override { return {scale_, static_cast<float>(taken_)}; }
  void load(const std::vector<float>& saved) override {
    scale_ = saved[0];
    taken_ = static_cast<int>(saved[1]);
  }

 private:
  float scale_;
  int interval_, taken_ = 0;
};

std::unique_ptr<learn::LossScale> make_loss_scale(float first, int interval) {
  return std::make_unique<DynamicScale>(first, interval);
}
