#pragma once
// Where a run begins: at its first step, or at a checkpoint that fits.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "keel/tasks/task.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"

namespace keel {

// What `resume` asks for. never: the folder must hold no run. auto: its newest checkpoint that can be opened, or the
// beginning where there is none yet. A path: that checkpoint, or the newest one of that run's folder, unless the run's
// own folder holds a newer one. A checkpoint of another model, optimizer, or data, or other files
// of the task in the folder, is an Error. Nothing is
// written, but that with auto a newer copy in the memory of hosts becomes a checkpoint (keel/trainer/run_memory.h).
// Every rank calls it; the first one looks. `below`: only checkpoints of fewer steps, where a later one turned out to
// be damaged; then a path that names a checkpoint has no other. `copies_below`: the same of copies.
std::optional<Checkpoint> find_resume(const Config& config, const RunFolder& folder, const Data& data,
                                      TrainObserver& observer, Communicator& ranks,
                                      std::int64_t below = std::numeric_limits<std::int64_t>::max(),
                                      std::int64_t copies_below = std::numeric_limits<std::int64_t>::max());

// An Error where the configuration is of another task, or of another model, than the checkpoint.
void check_same_model(const Checkpoint& resume, const Config& config);
// An Error where the run's folder has one of the data's files with another text.
void check_same_files(const RunFolder& folder, const Data& data);

// Gives the engines the numbers of `resume`, if any. Damage to them shows when they are read: then an older checkpoint
// of the run is found and takes its place, with a warning. Every rank calls it.
void load_beginning(const Config& config, const RunFolder& folder, const Data& data, TrainObserver& observer,
                    Communicator& ranks, std::span<Sharded* const> engines, std::optional<Checkpoint>& resume);

}  // namespace keel
