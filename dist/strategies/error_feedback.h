#pragma once
// The residual of a unit's compressed gradient (Seide et al. 2014; Karimireddy et al. 2019): what the messages of a
// step leave out is added to the next gradient.
//
// Units are sent before the last gradients are known, and a gradient that is not finite undoes the whole step. The
// residual from before the step cannot be computed back from the one after it: sums are rounded, and gradients of other
// ranks' shards are gone as soon as they are sent. So the old residual is kept as well, from a unit's first message to
// the end of the step.

#include <cstdint>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

class ErrorFeedback {
 public:
  // For a gradient of so many numbers. `purpose`: what the memory of the residual counts as.
  ErrorFeedback(const Context& context, std::int64_t count, Purpose purpose = Purpose::gradient);

  // Keeps what there is before the step, unless the step has begun already. add() does it, too.
  void begin_step();
  // `decay` of the residual and the gradient, each `scale` times the true one, added up. Whoever sends them leaves
  // there what is not sent.
  const Tensor& add(const Tensor& gradient, double scale, double decay = 1);
  // Everything is sent: what is left becomes the residual of the true gradient.
  void settle();
  // Keeps the step's residual, or the one from before the step where that was not taken.
  void end_step(bool taken);
  // A further tensor that a step which is not taken leaves as it was.
  void protect(const Tensor& state) { states_.push_back(state); }

  // f32 (count): between steps, the residual of the true gradient.
  const Tensor& residual() const { return states_.front(); }

 private:
  std::vector<Tensor> states_;  // the residual, and what else is protected
  std::vector<Tensor> before_;  // this step, while it has begun
  double scale_ = 1;
};

}  // namespace keel
