#include "keel/dist/parallel/reducer.h"

#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {

Reducer::Reducer(const FlatBuffer& layout, const UnitSplit& split, const UnitSite& site)
    : split_(split), times_(site.times) {
  if (split.reduction.state > 0) feedback_.emplace(site.context, split.reduction.residual.count());
  const StageSite shared{site, layout, split};
  FactorStages factors;
  for (const ReductionStage& stage : split.reduction.stages) {
    using Kind = ReductionStage::Kind;
    switch (stage.kind) {
      case Kind::left_factors:
        factors = make_factor_stages(shared);
        stages_.push_back(std::move(factors.left));
        feedback_->protect(factors_ = factors.factors);
        break;
      case Kind::right_factors: stages_.push_back(std::move(factors.right)); break;
      default: stages_.push_back(make_stage(stage.kind, shared));
    }
  }
}

void Reducer::begin(const Tensor& gradient, double scale, const Tensor& into) {
  into_ = into;
  next_ = 0;
  scale_ = scale;
  if (feedback_) feedback_->begin_step();
  begin_stage(gradient);
}

void Reducer::begin_stage(Tensor numbers) {
  if (feedback_ && next_ == split_.reduction.feedback_stage) {
    const WorkTimer::Scope timing(times_.codec);
    numbers = feedback_->add(numbers, scale_);
  }
  work_ = stages_[next_++]->begin(numbers, into_);
}

void Reducer::wait() {
  const Stopwatch watch(times_.waited_ms);
  std::exchange(work_, {}).wait();
}

void Reducer::proceed() {
  if (next_ == stages_.size()) return;
  wait();
  begin_stage(stages_[next_ - 1]->finish());
}

Tensor Reducer::finish() {
  while (next_ < stages_.size()) proceed();
  if (feedback_) {
    const WorkTimer::Scope timing(times_.codec);
    feedback_->settle();
  }
  wait();
  const Tensor sum = stages_.back()->finish();
  into_ = {};
  if (sum.dtype() == split_.wire) return sum;
  const WorkTimer::Scope timing(times_.codec);
  return kernels::cast(sum, split_.wire);
}

void Reducer::end_step(bool taken) {
  if (feedback_) feedback_->end_step(taken);
}

}  // namespace keel
