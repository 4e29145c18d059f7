#pragma once
// A few steps of everything that a run does, of which nothing stays (fast_dev_run).

#include <functional>

#include "keel/dist/comm/communicator.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/config.h"
#include "keel/trainer/trainer.h"

namespace keel {

// Runs the same from its beginning, for fast_dev_run steps, in a folder beside the run's that is removed in the end:
// without trackers, and evaluated in as many batches of each set. Its last step evaluates and saves. Every rank calls
// it; `run` is what trains.
TrainResult try_out(const Config& config, TrainObserver& observer, Communicator& ranks, Callbacks callbacks,
                    const std::function<TrainResult(const Config& config, const Callbacks& callbacks)>& run);

}  // namespace keel
