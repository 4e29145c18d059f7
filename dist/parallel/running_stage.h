#pragma once
// A stage of a reduction, as one rank runs it.

#include <memory>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/engine_site.h"
#include "keel/dist/parallel/error_feedback.h"
#include "keel/dist/parallel/page.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/nn/flat_buffer.h"

namespace keel {

class RunningStage {
 public:
  virtual ~RunningStage() = default;
  // Encodes the numbers, which the last stage has left or which are the whole gradient, and asks for the collective.
  // The result may go to `into`, where that is defined.
  virtual Work begin(const Tensor& numbers, const Tensor& into) = 0;
  // What the collective has brought: sums over its ranks.
  virtual Tensor finish() = 0;
};

// The two stages of PowerSGD, which share the factors that they return: f32, (rank, columns) of each of
// low_rank_parts(), one behind the other, the same on every rank.
struct FactorStages {
  std::unique_ptr<RunningStage> left, right;
  Tensor factors;
};
FactorStages make_factor_stages(const UnitSite& unit);

}  // namespace keel
