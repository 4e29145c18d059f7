// loss_scale: ranks that skip a step, or take it, together
//
// fp16 has no number between 0 and 6e-8, and many gradients are smaller. So the loss is multiplied by a
// scale, and the gradients are divided by it again (Micikevicius and others, 2018). Too large a scale makes
// some gradient infinite or NaN. The best scale changes during training, so it is looked for:
//
//   If any gradient of any rank is not finite, all ranks skip the step, and the scale is halved.
//   Otherwise all ranks take the step. After `interval` steps taken in a row the scale is doubled, and a new
//     row begins. A skipped step ends a row, too.
//   The scale stays between 1 and 2^24.
//
// Each rank has gradients of its own, and one rank alone may find an infinite one. Ranks must agree: one that
// skips a step alone has other weights from then on. For that each rank tells the others one number.
//
// A run that goes on from a checkpoint has the scales that it would have had without a break.
//
// given/loss_scale.h has the interface, and given/ranks.h the group. To read afterwards:
// dist/parallel/step_decision.h.

#include <cmath>
#include <vector>

#include "learn/given/loss_scale.h"

class DynamicScale : public learn::LossScale {
 public:
  DynamicScale(float first, int interval) : scale_(first), interval_(interval) {}

  float scale() const override { return scale_; }
  bool unscale(learn::Group& group, learn::Out gradients) override {
    return false;  // Your code.
  }
  std::vector<float> save() const override { return {}; }  // Your code.
  void load(const std::vector<float>& saved) override {}   // Your code.

 private:
  float scale_;
  int interval_;
};

std::unique_ptr<learn::LossScale> make_loss_scale(float first, int interval) {
  return std::make_unique<DynamicScale>(first, interval);
}
