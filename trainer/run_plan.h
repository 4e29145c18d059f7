#pragma once
// What a configured run needs on so many ranks, without training: formulas, and what a run that ended has measured.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/dist/plan/step_trace.h"
#include "keel/trainer/config.h"
#include "keel/trainer/stack_models.h"

namespace keel {

struct ModelSize {
  std::int64_t parameters = 0;    // numbers, tied ones once
  std::int64_t trained = 0;       // of those, apart from what is frozen
  std::int64_t units = 0;         // how many there are; each is sharded by itself
  std::int64_t largest_unit = 0;  // numbers
  std::string largest_name;       // "h.0"; "the rest" for what is in no unit of its own
};

// All models together; the name of a unit begins with that of its model, if that has one.
ModelSize measure_model(const StackModels& models);

// Calls of backward() between two steps on each rank.
std::int64_t planned_micro_batches(const Config& config, int ranks);

// Rank 0's plan, with averages of weights as optimizer state; no rank needs more. The models, those of the
// configuration's task (keel/trainer/make_task.h) or others, may have no memory yet. `config.strategy.precision` must
// have been decided. `on_processor`: the device is the processor, so nothing needs to be offloaded.
// `memory.checkpoint` is there where checkpoints are asynchronous. `memory.copies` is there with
// checkpoint.memory_every: two copies of the files of ranks 0 and 1. Where hosts have different numbers of ranks, a
// rank may keep the files of several others.
RankPlan plan_run(const Config& config, const StackModels& models, int ranks, bool on_processor = false);

// Bytes of a rank's files in a checkpoint.
std::int64_t planned_files(const Config& config, const StackModels& models, int ranks, int rank);

// What a rank does in a step, in order. An Error where the task has several models, whose turns only its code knows.
std::vector<TraceNode> trace_run(const Config& config, TaskBase& task, int ranks, int rank);

// Mean times of the steps between two records, in milliseconds, without evaluations and checkpoints.
struct StepTime {
  double step_ms = 0;
  double exposed_ms = 0;  // in which rank 0 waited for others
};

// Whether the newest session of the run in that folder computed on a device, as its records tell: they alone have
// `device_bytes` and `peak_host_bytes`.
bool ran_on_device(const std::string& folder);

// What rank 0 of a run has written down.
struct MeasuredRun {
  Config config;  // as it was resolved
  int ranks = 1;
  bool on_device = false;  // see ran_on_device()
  // Bytes, at their peaks; those of the host are of runs on devices. See MemoryPlan.
  std::int64_t parameter = 0, gradient = 0, optimizer = 0, buckets = 0, checkpoint = 0, host = 0, host_buckets = 0;
  // Bytes in a step, on average between the first and the last record, with evaluations. None where the optimizer
  // evaluates the loss several times in a step: plans are of one.
  std::optional<std::int64_t> sent = {};
  // By record, without the first. A record of an older keel has no step_ms; then it is that of its tokens_per_s, a mean
  // over many steps, which may be less than exposed_ms.
  std::vector<StepTime> times = {};
};

// Nothing where the folder holds no run that came to an end.
std::optional<MeasuredRun> read_measured_run(const std::string& folder,
                                             const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

}  // namespace keel
