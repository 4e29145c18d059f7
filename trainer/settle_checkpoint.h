#pragma once
// What follows when a run's newest checkpoint is there.

#include <cstdint>

#include "keel/trainer/config.h"
#include "keel/trainer/run_folder.h"

namespace keel {

// Lets all in the folder go by the checkpoint of this step: the name of the newest one, the weights beside the
// checkpoints, and old ones that go, by `keep` and `keep_every`. Of one rank.
void settle_checkpoint(const RunFolder& folder, std::int64_t step, const CheckpointConfig& config);

}  // namespace keel
