#pragma once
// Where a run begins: at its first step, or at a checkpoint that fits.

#include <optional>
#include <string>

#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/task.h"

namespace keel {

struct Resume {
  std::string path;
  TrainState state;
};

// What `resume` asks for. never: the folder must hold no run. auto: its newest checkpoint that is whole, or the
// beginning where there is none yet. A path: that checkpoint, or the newest one of that run's folder, unless the run's
// own folder holds a newer one. A checkpoint of another model, optimizer, tokenizer or data is an Error. Nothing is
// written. Every rank calls it; the first one looks.
std::optional<Resume> find_resume(const Config& config, const RunFolder& folder, const Task& task,
                                  TrainObserver& observer, Communicator& ranks);

}  // namespace keel
