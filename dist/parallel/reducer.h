#pragma once
// What becomes of a unit's gradient between backward and the optimizer: the stages of its ReductionPlan, one after the
// other.
//
// Sums over ranks are taken in fp32 in the order of ranks, whatever the stages, so all sharding stages and all ranks
// have the same bits.

#include <memory>
#include <optional>
#include <vector>

#include "keel/dist/parallel/engine_site.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/dist/strategies/error_feedback.h"

namespace keel {

// A stage of the plan, as one rank runs it.
class RunningStage {
 public:
  virtual ~RunningStage() = default;
  // Encodes the numbers, which the last stage has left or which are the whole gradient, and asks for the collective.
  // The result may go to `into`, where that is defined.
  virtual Work begin(const Tensor& numbers, const Tensor& into) = 0;
  // What the collective has brought: sums over its ranks.
  virtual Tensor finish() = 0;
  // What it keeps from step to step; undefined: nothing.
  virtual Tensor factors() const { return {}; }
};

// The two stages of PowerSGD in one: the left factors, and then the right ones, which take what has come of the left.
// It keeps the right ones: f32, (rank, columns) of each of low_rank_parts(), one behind the other, the same on every
// rank.
std::shared_ptr<RunningStage> make_factor_stages(const UnitSite& unit);

class Reducer {
 public:
  // The unit must outlive it.
  explicit Reducer(const UnitSite& unit);

  // Begins to sum the whole gradient, (padded), which is the true one times `scale`. May be called several times in a
  // step. `into`: where a sum in the wire dtype may go; it may be undefined.
  void begin(const Tensor& gradient, double scale, const Tensor& into);
  // Goes on to the next stage, if there is one; blocks until the last has ended.
  void proceed();
  // Runs what is left. The sum over ranks, times `scale`, in the wire dtype: of the unit where split.sums_whole(),
  // otherwise of this rank's shard.
  Tensor finish();
  // Keeps what compression has left out in this step, or what it had before where that was not taken.
  void end_step(bool taken);

  // What is kept from step to step: null without error feedback, and undefined but for PowerSGD.
  const ErrorFeedback* feedback() const { return feedback_ ? &*feedback_ : nullptr; }
  const Tensor& factors() const { return factors_; }

 private:
  void begin_stage(Tensor numbers);

  const UnitSite& unit_;
  std::optional<ErrorFeedback> feedback_;
  std::vector<std::shared_ptr<RunningStage>> stages_;
  Tensor factors_, into_;
  std::size_t next_ = 0;  // stage to begin
  double scale_ = 1;      // of the gradient that is reduced
  Work work_;
};

}  // namespace keel
