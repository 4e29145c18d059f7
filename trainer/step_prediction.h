#pragma once
// How long a step will take on so many ranks: computing as a run has measured it, communication by the model that is
// calibrated from what `keel comm` has measured.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/lab/report.h"
#include "keel/trainer/run_plan.h"

namespace keel {

// Milliseconds of a step.
struct StepPrediction {
  int ranks = 1;
  double compute_ms = 0;
  double communication_ms = 0;  // of all collectives, one after the other
  double exposed_ms = 0;        // of that, what the step waits for
  double step_ms = 0, low_ms = 0, high_ms = 0;
  bool is_extrapolated = false;  // beyond 8 times the most ranks that `keel comm` was run on
};

// compute = that of the run, as many times as a rank has more sequences; exposed = that of the run, as many times as
// the model says that communication costs more; step = compute + exposed. The interval takes from both two standard
// deviations of the run's records, and of communication the model's interval (keel/dist/lab/cost_model.h). A run of one
// rank does not say how much hides behind computing: then all counts as exposed, and `low_ms` has all of it hidden.
//
// An Error where the run has trained another model, in other numbers, or kept too few records; where a collective was
// not measured, or has no formula (groups of ranks, compressed gradients).
StepPrediction predict_step(const Config& config, const MeasuredRun& run, std::span<const lab::Report> reports,
                            std::int64_t vocabulary, int ranks, int ranks_per_node);

// All collectives of a step of `config`, in milliseconds, by the same model.
struct CommunicationTime {
  double ms = 0, low_ms = 0, high_ms = 0;
  bool is_extrapolated = false;
};
CommunicationTime predict_communication(const Config& config, std::span<const lab::Report> reports,
                                        std::int64_t vocabulary, int ranks, int ranks_per_node);

}  // namespace keel
