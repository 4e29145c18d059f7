#pragma once
// How long a step will take on another number of ranks: computing as a run has measured it, communication by a model
// fitted to what `keel comm` has measured.

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
  double exposed_ms = 0;        // the part of it that the step waits for
  double step_ms = 0, low_ms = 0, high_ms = 0;
  bool is_extrapolated = false;  // beyond 8 times the most ranks that `keel comm` was run on
};

// compute = the run's, times (sequences of a rank) / (sequences of a rank of the run)
// exposed = the run's, times (communication) / (communication on the run's ranks), both by the model
// step    = compute + exposed
//
// The interval is two standard deviations of the run's records, for both, and the model's interval for communication
// (keel/dist/lab/cost_model.h). A run of one rank does not tell how much communication hides behind computing. Then
// `step_ms` counts all of it as exposed, and `low_ms` counts none.
//
// Throws an Error where the run has trained another model, in other numbers, or has kept too few records, or such that
// they leave no time for computing (records of an older keel may), and where a
// collective was not measured or has no formula (groups of ranks, compressed gradients).
StepPrediction predict_step(const Config& config, const MeasuredRun& run, std::span<const lab::Report> reports,
                            const StackModels& models, int ranks, int ranks_per_node);

// All collectives of a step of `config`, in milliseconds, by the same model.
struct CommunicationTime {
  double ms = 0, low_ms = 0, high_ms = 0;
  bool is_extrapolated = false;
};
CommunicationTime predict_communication(const Config& config, std::span<const lab::Report> reports,
                                        const StackModels& models, int ranks, int ranks_per_node);

}  // namespace keel
