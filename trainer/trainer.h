#pragma once
// The training loop: from a configuration to a run folder with metrics, checkpoints and weights.

#include <optional>

#include "keel/dist/comm/communicator.h"
#include "keel/runtime/allocator.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"

namespace keel {

enum class TrainEnd : unsigned char {
  finished,
  time_limit,
  stopped,   // by a signal
  callback,  // one has asked for it
};

struct TrainResult {
  TrainEnd end = TrainEnd::finished;
  std::int64_t step = 0;                      // steps done, those of resumed runs included
  double loss = 0;                            // of the last step
  std::optional<EvalReport> evaluation = {};  // the last one
  MemoryReport memory = {};                   // peaks of the run, by purpose
  std::int64_t peak_resident_bytes = 0;       // of the process, as the kernel counts
  int dropped_groups = 0;                     // of ranks (outer.on_failure); the communicator has lost these ranks
  bool is_first = true;                       // of the ranks that are left at the end
};

// Trains as `config` says and writes into config.run (keel/trainer/run_folder.h). Data, model and checkpoint are
// checked before anything is written. Whatever ends the run early, a signal, a full disk, an observer that throws, a
// loss that is not finite (an Error of kind numeric that names the first bad tensor): what was learnt is saved first.
TrainResult train(const Config& config, TrainObserver& observer, const Callbacks& callbacks = {});

// The same by several ranks: each calls it with the same configuration, and its own end of their communicator. The
// run's folder must be one that all see; the first rank writes it, and every rank its own log. An AgreedError
// (keel/dist/comm/agreement.h) is one that all ranks throw, after saving where there is anything to save. `callbacks`
// are this rank's own objects, as many of the same names on every rank; they come after those of the configuration.
TrainResult train(const Config& config, TrainObserver& observer, Communicator& ranks, const Callbacks& callbacks = {});

}  // namespace keel
