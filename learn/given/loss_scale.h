#pragma once
// The scale of a loss, as a training loop uses it.

#include <memory>
#include <vector>

#include "learn/given/ranks.h"

namespace learn {

class LossScale {
 public:
  virtual ~LossScale() = default;
  // What the loss of the next step is multiplied with.
  virtual float scale() const = 0;
  // `gradients` are the rank's own, of the loss times scale(). Divides them by scale(), says whether the step
  // is taken, and sets the scale of the next step. All ranks call it once a step, and get the same answer.
  virtual bool unscale(Group& group, Out gradients) = 0;
  // What a checkpoint keeps, and what makes a new object go on from there.
  virtual std::vector<float> save() const = 0;
  virtual void load(const std::vector<float>& saved) = 0;
};

}  // namespace learn
